"""The status page in a browser, and the dashboard's queries in a real Prometheus, with clients at work on 3.9.1.

Pictures are written to the folder PICTURES of the environment (build/pictures by default), to be looked at. Tests check
the DOM that the browser has made, and the background that it has drawn.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.front import Front

from tests.deploy.test_monitoring import dashboard, keda_query
from tests.support import chromium as controlled
from tests.support import drawn_panels
from tests.support.brokers import OLD, QUICK, Running
from tests.support.chromium import BROWSERS, PICTURES, WCAG
from tests.support.html_tree import Element, read
from tests.support.observed_traffic import DONE, RECORDS, Observed, WithoutBrokers, at_work, keep_working
from tests.support.prometheus_server import Prometheus

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(600)]

BROWSER_S = 60
SCRAPED_S = 45.0
"""Seconds until rates over several scrapes exist."""
WIDTHS = {"desktop": 1280, "phone": 390}


@pytest.fixture(scope="module")
def front(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Front:
    quick = QUICK | {"group.share.record.lock.duration.ms": "60000"}
    peer = {"listen": f"{HOST}:{free_ports(1)[0]}", "insecure": True}
    settings = {
        "share_groups": {"state": "topic", "broker": quick},
        "cluster": {"mode": "fleet", "peer": peer},
        "audit": {"file": str(tmp_path_factory.mktemp("audit") / "events.jsonl")},
    }
    return running.front(running.cluster(OLD).bootstrap, settings)


@pytest.fixture(scope="module")
def observed(front: Front) -> Iterator[Observed]:
    with at_work(front.bootstrap, lambda kind: f"long-{kind}") as names:
        yield names


@pytest.fixture(scope="module")
def browser() -> str:
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        pytest.skip(f"there is none of {', '.join(BROWSERS)} on this machine")
    return browser_path


class Browser:
    """Headless Chromium, a new process for each page."""

    def __init__(self, path: str, folder: Path) -> None:
        self._options = [path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        self._options += [f"--user-data-dir={folder}", "--virtual-time-budget=8000"]

    def run(self, *arguments: str) -> str:
        command = [*self._options, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BROWSER_S, check=False)
        assert done.returncode == 0, done.stderr
        refused = [line for line in done.stderr.splitlines() if "Content Security Policy" in line or "Uncaught" in line]
        assert not refused
        return done.stdout

    def dom(self, url: str) -> Element:
        """Return the document after its script has run."""
        return read(self.run("--dump-dom", url))

    def picture(self, url: str, name: str, width: int, height: int, scheme: str) -> bytes:
        PICTURES.mkdir(parents=True, exist_ok=True)
        file = PICTURES / f"{name}.png"
        prefers = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
        self.run(f"--screenshot={file}", f"--window-size={width},{height}", prefers, url)
        return file.read_bytes()


@pytest.fixture
def chromium(browser: str, tmp_path: Path) -> Browser:
    return Browser(browser, tmp_path / "profile")


BACKGROUND = {"dark": (15, 20, 26), "light": (255, 255, 255)}


def background(picture: bytes) -> tuple[int, ...]:
    """Return the first pixel of a PNG, which no filter changes."""
    assert picture.startswith(b"\x89PNG")
    data, at = b"", 8
    while at < len(picture):
        size, kind = struct.unpack_from(">I4s", picture, at)
        data += picture[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    return tuple(zlib.decompress(data)[1:4])


def opened(front: Front, folder: Path) -> str:
    """Write the page with all its details open, as after clicks. Return its address."""
    is_ok, text = front.send_request("/status")
    assert is_ok
    file = folder / "status.html"
    file.write_text(text.replace("<details ", "<details open "))
    return file.as_uri()


def test_the_script_runs_under_the_policy_of_the_page(front: Front, observed: Observed, chromium: Browser) -> None:
    page = chromium.dom(f"http://{HOST}:{front.admin_port}/status")
    assert "hidden" not in page.first("span", id="control").attributes
    assert page.first("span", id="told").text.startswith("as of "), "the content was not replaced"
    assert observed.held in [each.text for each in page.all("summary")]


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("device", WIDTHS)
def test_pictures_of_clients_at_work(
    front: Front, observed: Observed, chromium: Browser, tmp_path: Path, device: str, scheme: str
) -> None:
    width, page = WIDTHS[device], f"http://{HOST}:{front.admin_port}/"
    closed = chromium.picture(page, f"closed-{device}-{scheme}", width, 1600, scheme)
    chromium.picture(opened(front, tmp_path), f"open-{device}-{scheme}", width, 4200, scheme)
    assert background(closed) == BACKGROUND[scheme]


def test_pictures_of_a_proxy_without_clients_and_of_one_without_brokers(
    running: Running, chromium: Browser, tmp_path: Path
) -> None:
    idle = running.front(running.cluster(OLD).bootstrap)
    alone = WithoutBrokers(f"{HOST}:{free_ports(1)[0]}", tmp_path / "alone")
    with alone:
        for name, front in (("idle", idle), ("without-brokers", alone)):
            chromium.picture(f"http://{HOST}:{front.admin_port}/", name, WIDTHS["phone"], 1400, "light")
        page = chromium.dom(f"http://{HOST}:{alone.admin_port}/")
    assert [row[1] for row in page.table("What clients can use")] == ["no"] * 4
    assert "The cluster has not responded yet." in page.text


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_no_violation_with_all_details_open(
    front: Front, observed: Observed, chromium: Browser, tmp_path: Path, scheme: str
) -> None:
    """Rules of WCAG 2.2 A and AA, contrast included. The page is a copy, in which the library may run."""
    library = controlled.axe_core()
    file = Path(urllib.request.url2pathname(opened(front, tmp_path).removeprefix("file:")))
    file.write_text(file.read_text().replace("</body>", f'<script src="{library.as_uri()}"></script>{AXE}</body>'))
    dom = chromium.run("--dump-dom", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", file.as_uri())
    results = json.loads(re.findall(r'(?s)<pre id="axe">(.*?)</pre>', html.unescape(dom))[0])
    assert results["passes"] > MIN_PASSES
    assert results["violations"] == []


MIN_PASSES = 15
"""Rules that apply to the page at least. Fewer would mean that the library saw another page."""
AXE = (
    f"<script>const RULES = {json.dumps(WCAG)}</script>"
    + """<script>
axe.run({runOnly: RULES}).then(found => {
  const told = document.createElement('pre');
  told.id = 'axe';
  told.textContent = JSON.stringify({
    passes: found.passes.length,
    violations: found.violations.map(each => each.id + ': ' + each.nodes.map(node => node.html).join(' ')),
  });
  document.body.append(told);
});
</script>"""
)


@pytest.fixture(scope="module")
def prometheus(front: Front, observed: Observed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scraping, while members of share groups and readers of a view get new records, and offsets are committed."""
    scraping = Prometheus(tmp_path_factory.mktemp("prometheus"), front.admin_port)
    try:
        keep_working(front.bootstrap, observed, SCRAPED_S)
        yield scraping
    finally:
        scraping.child.stop()


MAY_BE_EMPTY = {
    "Internal topics at risk: {{topic}}: {{risk}}",
    "Audit events: {{instance}} lost ({{where}})",
    "Expired acquisition locks, and dead letters: {{group}} dead letters",
}
"""Queries about what does not happen here."""


@pytest.fixture(scope="module")
def filled(prometheus: Prometheus) -> list[dict[str, Any]]:
    """The panels of the dashboard with the data of the last minute."""
    return drawn_panels.with_data(dashboard(), prometheus, SCRAPED_S)


def test_every_query_of_the_dashboard_returns_data(filled: list[dict[str, Any]]) -> None:
    targets = [(panel["title"], target) for panel in filled for target in panel.get("targets", ())]
    empty = {f"{title}: {target['legendFormat']}" for title, target in targets if not target["series"]}
    assert empty <= MAY_BE_EMPTY


def test_every_series_of_a_panel_has_its_own_name(filled: list[dict[str, Any]]) -> None:
    """Also once more proxies are selected: a legend names each label by which the series of its query differ."""
    for panel in filled:
        names = [series["name"] for target in panel.get("targets", ()) for series in target["series"]]
        assert len(set(names)) == len(names), (panel["title"], names)
        assert all(name == name.strip() and "  " not in name for name in names), names


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_panel_is_drawn_by_the_components_of_grafana(
    filled: list[dict[str, Any]], tmp_path: Path, scheme: str
) -> None:
    with controlled.tab(tmp_path / "profile") as tab:
        drawn = drawn_panels.draw(filled, tab, PICTURES / f"dashboard-{scheme}.png", scheme)
    panels = [panel for panel in filled if panel["type"] != "row"]
    assert [each["title"] for each in drawn] == [panel["title"] for panel in panels]
    for panel, panel_state in zip(panels, drawn, strict=True):
        assert "No data" not in panel_state["text"], panel["title"]
        assert panel_state["drawn"] > 0, panel["title"]
        assert panel_state["hasUnit"], (panel["title"], "Grafana does not know the unit")
        for target in panel["targets"]:
            assert all(series["name"] in panel_state["text"] for series in target["series"]), (
                panel["title"],
                panel_state["text"],
            )


def test_every_rule_is_evaluated_and_only_dead_letters_alert(prometheus: Prometheus, observed: Observed) -> None:
    assert all(rule["health"] == "ok" for rule in prometheus.rules())
    alerting = {rule["name"] for rule in prometheus.rules() if rule.get("alerts")}
    assert "KspDeadLettersWait" in alerting
    assert not alerting & {"KspDown", "KspStateNotServed", "KspLagUnknown", "KspBrokersLeftOut"}


def test_the_query_of_the_autoscaler_returns_the_lag_of_a_group(prometheus: Prometheus, observed: Observed) -> None:
    (series,) = prometheus.query(keda_query().replace('"orders"', f'"{observed.held}"'))
    assert float(series["value"][1]) == RECORDS - DONE
