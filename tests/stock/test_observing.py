"""Lag on /metrics and the status page, with stock clients at work: one proxy on 3.9.1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.front import Front

from tests.support import chromium
from tests.support.brokers import OLD, QUICK, Running
from tests.support.html_tree import Element, read
from tests.support.observed_traffic import DONE, RECORDS, SLOTS, Observed, WithoutBrokers, at_work
from tests.support.raw import Raw, until

MORE = 7
"""Records that one of the tests appends, before or after the others."""
pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def front(running: Running) -> Front:
    quick = QUICK | {"group.share.record.lock.duration.ms": "60000"}
    return running.front(running.cluster(OLD).bootstrap, {"share_groups": {"state": "topic", "broker": quick}})


@pytest.fixture(scope="module")
def observed(front: Front) -> Iterator[Observed]:
    with at_work(front.bootstrap, lambda kind: f"observing-{kind}") as names:
        yield names


def figures(front: Front, metric: str) -> dict[str, float]:
    """Return the values of a metric by its only label."""
    page = front.send_request("/metrics")[1]
    return {label: float(value) for label, value in re.findall(rf'(?m)^{metric}{{\w+="([^"]*)"}} (\S+)$', page)}


def status(front: Front) -> Element:
    is_ok, text = front.send_request("/status")
    assert is_ok, text
    return read(text)


def details(page: Element, title: str) -> Element:
    return next(each for each in page.all("details") if each.first("summary").text == title)


def test_lag_of_share_groups_views_and_commits_is_that_of_what_is_not_done(front: Front, observed: Observed) -> None:
    lag = figures(front, "ksp_share_group_lag")
    assert lag[observed.held] == RECORDS - DONE
    assert lag[observed.ordered] == lag[observed.delayed] == lag[observed.letters] == RECORDS
    assert figures(front, "ksp_commit_group_lag")[observed.commits] in (RECORDS - 10 - 4, RECORDS + MORE - 10 - 4)
    assert figures(front, "ksp_view_lag")[observed.view] == 0
    assert set(figures(front, "ksp_share_lag_partitions_unknown").values()) == {0.0}


def test_lag_grows_with_new_records_that_no_member_has_read(front: Front, observed: Observed) -> None:
    with Raw(front.bootstrap) as raw:
        topic = raw.topic(observed.commits)
        assert topic is not None
        raw.produce(topic, MORE)
    grown = RECORDS + MORE - 10 - 4
    until(lambda: figures(front, "ksp_commit_group_lag")[observed.commits] == grown, "the new end", limit_s=20)


def test_the_status_page_shows_who_holds_what_until_when(front: Front, observed: Observed) -> None:
    page = status(front)
    rows = {row[0]: row for row in page.table("Groups held by this proxy")}
    assert rows[observed.held][1:4] == [str(RECORDS - DONE), "1", str(RECORDS - DONE)]
    held = details(page, observed.held)
    (lock, *_) = held.table("Locks: who holds what, and until when")
    assert lock[0] == f"{observed.held}-0"
    assert lock[1] == f"{DONE}-{RECORDS - 1}"
    (member,) = held.table("Members")
    assert (member[0], member[1]) == (lock[2], f"client <of> {observed.held}")
    (partition,) = held.table("Partitions")
    assert partition[2:4] == [str(DONE), str(RECORDS - DONE)]


def test_the_status_page_shows_delayed_and_blocked_records_and_dead_letters(front: Front, observed: Observed) -> None:
    page = status(front)
    rows = {row[0]: row for row in page.table("Groups held by this proxy")}
    assert rows[observed.delayed][4] == str(RECORDS)
    assert rows[observed.ordered][5] == str(RECORDS - 1)
    assert rows[observed.letters][6] == str(RECORDS)
    assert details(page, observed.delayed).table("Delayed records")[0][1] == f"0-{RECORDS - 1}"
    assert details(page, observed.ordered).table("Keys with blocked records")[0][2:] == ["0", str(RECORDS - 1)]
    assert "They cannot be written now" in details(page, observed.letters).text


def test_the_status_page_shows_views_with_their_load_and_commits_with_their_holes(
    front: Front, observed: Observed
) -> None:
    page = status(front)
    heat = details(page, observed.view).first("table", **{"class": "heat"})
    sent = [int(cell.text) for cell in heat.first("tbody").all("td")]
    assert len(sent) == SLOTS
    assert sum(sent) == RECORDS
    holes = details(page, observed.commits).table("Oldest holes")
    assert holes == [[f"{observed.commits}-0", "10-11", "2"], [f"{observed.commits}-0", "15-19", "5"]]


def test_the_status_page_shows_brokers_and_what_clients_can_use(front: Front, observed: Observed) -> None:
    page = status(front)
    assert [row[1] for row in page.table("What clients can use")] == ["yes"] * 4
    assert page.table("Brokers")[0][3] == "listed"


# In a browser, where Chromium is installed


@pytest.fixture(scope="module")
def shown(
    running: Running, front: Front, observed: Observed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Addresses of pages by what they show."""
    memory = {"share_groups": {"state": "memory"}, "commits": {"state": "memory"}, "views": {"serve": False}}
    idle = running.front(running.cluster(OLD).bootstrap, memory)
    (confirmation,) = {
        str(link.attributes["href"])
        for link in details(status(front), observed.held).all("a")
        if str(link.attributes["href"]).startswith("/status/confirm/")
    }
    with WithoutBrokers(f"{HOST}:{free_ports(1)[0]}", tmp_path_factory.mktemp("alone")) as alone:
        at_work = f"http://{HOST}:{front.admin_port}"
        yield {
            "clients-at-work": f"{at_work}/status",
            "all-details": f"{at_work}/status",
            "confirmation": f"{at_work}{confirmation}",
            "idle": f"http://{HOST}:{idle.admin_port}/status",
            "without-brokers": f"http://{HOST}:{alone.admin_port}/status",
        }


EXPECTED = {
    "clients-at-work": "observing-held",
    "all-details": "Locks: who holds what, and until when",
    "confirmation": f"Release {RECORDS - DONE} records",
    "idle": "Groups held by this proxy: none",
    "without-brokers": "The cluster has not responded yet.",
}
"""Text of each page."""
WINDOWS = ((1280, 1400, "dark"), (390, 844, "light"))
BACKGROUND = {"dark": "rgb(15, 20, 26)", "light": "rgb(255, 255, 255)"}
MIN_PASSES = 8
"""Rules of axe-core that apply to these pages at least. Fewer would mean that it saw another page."""


@pytest.mark.parametrize("name", EXPECTED)
def test_a_browser_shows_the_page_in_both_schemes_also_on_a_phone(
    shown: dict[str, str], tmp_path: Path, name: str
) -> None:
    """Pictures are in build/pictures afterwards, to be looked at."""
    with chromium.tab(tmp_path / "profile") as tab:
        tab.open(shown[name])
        if name == "all-details":
            tab.value("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert EXPECTED[name] in tab.value("document.body.innerText")
        for width, height, scheme in WINDOWS:
            tab.show(width, height, scheme)
            whole = max(height, tab.value("document.documentElement.scrollHeight"))
            tab.picture(chromium.PICTURES / f"status-{name}-{width}-{scheme}.png", width, whole, scheme)
            assert tab.value("getComputedStyle(document.body).backgroundColor") == BACKGROUND[scheme]
            assert tab.value("document.documentElement.scrollWidth") <= width, "tables scroll, the page does not"
            passes, violations = tab.audit()
            assert passes > MIN_PASSES
            assert violations == []
