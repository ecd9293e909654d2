"""Release of locks from the status page in a browser, and what another site can do there.

Pictures are written to the folder PICTURES of the environment (build/pictures by default), to be looked at.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.front import Front

from tests.support import chromium
from tests.support.brokers import OLD, QUICK, Running
from tests.support.chromium import PICTURES, Tab
from tests.support.html_tree import read
from tests.support.observed_traffic import DONE, RECORDS, at_work, holding

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(400)]

HELD = RECORDS - DONE
MIN_PASSES = 8
"""Rules that apply to these pages at least. Fewer would mean that the library saw another page."""
NUMBERS = itertools.count()
RELEASE = "details[open] a[href^='/status/confirm/']"


@pytest.fixture(scope="module")
def front(running: Running) -> Front:
    """Locks outlast the tests: what is released, was released by one of them."""
    quick = QUICK | {"group.share.record.lock.duration.ms": "60000"}
    return running.front(running.cluster(OLD).bootstrap, {"share_groups": {"state": "topic", "broker": quick}})


@pytest.fixture
def group(front: Front) -> Iterator[str]:
    """A share group whose member holds records. The page has details of 20 groups only."""
    name = f"held-{next(NUMBERS)}"
    with holding(front.bootstrap, name):
        yield name


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with chromium.tab(tmp_path / "profile") as opened:
        yield opened


def address(front: Front, path: str = "/status") -> str:
    return f"http://{HOST}:{front.admin_port}{path}"


def held(front: Front, group: str) -> int:
    is_ok, text = front.send_request(f"/groups/{group}")
    assert is_ok
    return sum(lock["last"] - lock["first"] + 1 for lock in json.loads(text)["locks"])


def open_confirmation(tab: Tab, front: Front, group: str) -> str:
    """Follow the link of the group's member, as an operator would. Return the address of the confirmation."""
    tab.open(address(front))
    opening = "[...document.querySelectorAll('details')].filter(each => each.querySelector('summary').textContent === "
    tab.value(f"{opening}{json.dumps(group)}).forEach(each => each.open = true)")
    tab.click(RELEASE)
    return str(tab.value("location.pathname"))


@contextmanager
def other_site(page: str) -> Iterator[str]:
    """Serve a page from another origin on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_operator_releases_locks_with_three_clicks(front: Front, group: str, tab: Tab) -> None:
    path = open_confirmation(tab, front, group)
    assert path.startswith(f"/status/confirm/groups/{group}/members/")
    for device, width in (("desktop", 1280), ("phone", 390)):
        for scheme in ("dark", "light"):
            tab.picture(PICTURES / f"confirm-{device}-{scheme}.png", width, 600, scheme)
    assert held(front, group) == HELD
    assert tab.value("document.querySelector('button').textContent") == f"Release {HELD} records"
    tab.click("button")
    tab.picture(PICTURES / "released-phone-light.png", 390, 600, "light")
    page = read(tab.html())
    assert page.first("h2").text == "Done"
    assert ["released records", str(HELD)] in page.table("Details")
    assert held(front, group) == 0
    tab.click("main > p > a")
    assert tab.value("location.pathname") == "/status"


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_no_violation_in_confirmation_and_result(front: Front, group: str, tab: Tab, scheme: str) -> None:
    open_confirmation(tab, front, group)
    for name in ("confirmation", "result"):
        tab.picture(PICTURES / f"axe-{name}-{scheme}.png", 1280, 600, scheme)
        passes, violations = tab.audit()
        assert passes > MIN_PASSES
        assert violations == []
        if name == "confirmation":
            tab.click("button")


def test_status_page_with_changes_is_photographed(front: Front, tab: Tab) -> None:
    with at_work(front.bootstrap, lambda kind: f"photographed-{kind}"):
        tab.open(address(front))
        tab.value("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert tab.value("document.querySelectorAll('a[href^=\"/status/confirm/\"]').length") > 2
        for device, width in (("desktop", 1280), ("phone", 390)):
            tab.picture(PICTURES / f"changes-{device}-light.png", width, 4200, "light")


def test_form_of_another_site_releases_nothing_even_with_the_token(front: Front, group: str, tab: Tab) -> None:
    path = open_confirmation(tab, front, group)
    token = tab.value("document.querySelector('input[name=confirmation]').value")
    form = (
        f'<form method="post" action="{address(front, path)}"><input name="confirmation" value="{token}">'
        "<button>Win a prize</button></form>"
    )
    with other_site(form) as url:
        tab.open(url)
        tab.click("button")
    page = read(tab.html())
    assert page.first("h2").text == "Nothing was changed"
    assert "the form was not sent from a page of this address" in page.text
    assert held(front, group) == HELD


def test_script_of_another_site_can_neither_read_the_token_nor_release(front: Front, group: str, tab: Tab) -> None:
    path = open_confirmation(tab, front, group)
    release = path.removeprefix("/status/confirm")
    with other_site("<p>a page</p>") as url:
        tab.open(url)
        confirmation, change = address(front, path), address(front, release)
        for arguments, expected in ((f"'{confirmation}'", "refused"), (f"'{change}', {{method: 'POST'}}", "refused"),
                                    (f"'{change}', {{method: 'POST', mode: 'no-cors'}}", "sent")):  # fmt: skip
            assert tab.value(f"fetch({arguments}).then(() => 'sent', () => 'refused')") == expected
    assert held(front, group) == HELD


def test_confirmation_cannot_be_framed(front: Front, group: str, tab: Tab) -> None:
    """Clickjacking."""
    path = open_confirmation(tab, front, group)
    with other_site(f'<iframe src="{address(front, path)}"></iframe>') as url:
        tab.open(url)
        (frame,) = tab.frames()
        shown = tab.value("(() => { try { return frames[0].document.body.textContent } catch { return 'opaque' } })()")
    assert "Release" not in shown
    assert frame in (address(front, path), "chrome-error://chromewebdata/")
    assert held(front, group) == HELD
