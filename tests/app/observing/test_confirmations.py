"""Changes that are confirmed in a browser, and requests that other sites could make it send."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote, urlencode

import pytest
from kafka_share_proxy.app.observing import admin_pages, confirmation_html
from kafka_share_proxy.app.observing.admin_pages import AdminPages, Changes
from kafka_share_proxy.app.observing.confirmations import BODY_MAX, VALID_S, Confirmations
from kafka_share_proxy.app.observing.status_page import StatusPage
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.feature.feature import Feature, Probe
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups import admin_pages as group_pages
from kafka_share_proxy.sharegroups import group_report, status
from kafka_share_proxy.sharegroups.lag import ShareLag
from kafka_share_proxy.wire.errors import ErrorCode

from tests.app.observing.test_admin_listener import running, send_request
from tests.app.observing.test_status_page import READY, parts
from tests.support.html_tree import Element, read
from tests.support.ports import SlowJournal, World, acquired

GROUP, MEMBER, RECORDS = 'a/g "<b>', "m 1&<i>", 10
PATH = "/".join(["/status/confirm/groups", quote(GROUP, safe=""), "members", quote(MEMBER, safe=""), "release"])
OWN = {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}
HTML = "text/html; charset=utf-8"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A proxy with a group whose member holds ten records."""

    def __init__(self, changes: Changes = "local") -> None:
        self.world = World(journal=SlowJournal())
        self.world.configure(GROUP, share_auto_offset_reset="earliest")
        topic = self.world.cluster.create("t")
        self.world.cluster.produce(topic, RECORDS)
        member = self.world.member(group_id=GROUP, member_id=MEMBER)
        member.heartbeat(0, ["t"])
        assert acquired(member.fetch(topic)) == [(0, RECORDS - 1, 1)]
        services = self.world.services
        feature = Feature(
            probe=Probe(path="x"),
            pages={"groups": partial(group_pages.response, services)},
            status=partial(status.section, services, ShareLag(services)),
        )
        self.clock = Clock()
        self.confirmations = Confirmations(AdminPages(("groups",), changes, lambda: (feature,)), self.clock)
        self.status = StatusPage(lambda: parts(feature), READY).steps

    @property
    def held(self) -> int:
        return group_report.held_records(self.world.services, GROUP, MEMBER)

    async def send(self, method: str, path: str, headers: dict[str, str], body: str = "") -> tuple[int, Element]:
        """Send one request. Return status and page; with the headers of a confirmation if the page is HTML."""
        sent = headers | ({"Content-Length": str(len(body))} if body or method == "POST" else {})
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", body]
        async with running(status=self.status, confirmations=self.confirmations) as (dial, _):
            code, received, page = await send_request(dial, "\r\n".join(lines).encode())
        if path.startswith("/status/confirm/") and received["content-type"] == HTML:
            assert {
                name.lower(): value.lower() for name, value in confirmation_html.HEADERS
            }.items() <= received.items()
            return code, read(page.decode())
        return code, read(page.decode()) if received["content-type"] == HTML else Element("", children=[page.decode()])

    async def form(self, path: str = PATH) -> tuple[str, str]:
        """Open the confirmation. Return address and body of the form."""
        code, page = await self.send("GET", path, {"Host": OWN["Host"]})
        assert code == 200, page.text
        (form,) = page.all("form")
        assert form.attributes["method"] == "post"
        fields = {each.attributes["name"]: each.attributes["value"] for each in form.all("input", type="hidden")}
        return form.attributes["action"], urlencode(fields)


async def test_status_page_links_to_the_release_of_each_member_that_holds_records() -> None:
    site = Site()
    _, page = await site.send("GET", "/status", {"Host": OWN["Host"]})
    links = [each for each in page.all("a") if each.text == f"release {MEMBER}"]
    assert [each.attributes["href"] for each in links] == [PATH] * 2, "in the tables of locks and of members"
    assert [each.text for each in page.all("th") if each.text == "Change"] == ["Change"] * 2


async def test_confirmed_release_frees_the_records_and_shows_their_number() -> None:
    site = Site()
    code, page = await site.send("GET", PATH, {"Host": OWN["Host"]})
    assert (code, site.held) == (200, RECORDS)
    assert f"Release all 10 records that member {MEMBER} of share group {GROUP} holds?" in page.text
    assert page.table("Details") == [["group", GROUP], ["member", MEMBER], ["records", "10"]]
    assert page.first("button").text == "Release 10 records"
    action, body = await site.form()
    code, page = await site.send("POST", action, OWN, body)
    assert (code, page.first("h2").text, site.held) == (200, "Done", 0)
    assert ["released records", "10"] in page.table("Details")
    assert ["durable", "yes"] in page.table("Details")
    _, page = await site.send("GET", "/status", {"Host": OWN["Host"]})
    assert not [each for each in page.all("a") if each.text.startswith("release")]


@pytest.mark.parametrize(
    "headers",
    [
        OWN | {"Origin": "http://evil.example"},
        OWN | {"Origin": "null"},
        OWN | {"Origin": "http://localhost:9999"},
        {"Host": OWN["Host"]},
        OWN | {"Sec-Fetch-Site": "cross-site"},
        OWN | {"Sec-Fetch-Site": "same-site"},
        OWN | {"Sec-Fetch-Site": "none"},
    ],
)
async def test_form_that_was_not_sent_from_a_page_of_this_address_changes_nothing(headers: dict[str, str]) -> None:
    site = Site()
    action, body = await site.form()
    code, page = await site.send("POST", action, headers, body)
    assert (code, page.first("h2").text, site.held) == (403, "Nothing was changed", RECORDS)
    assert (await site.send("POST", action, OWN, body))[0] == 200, "the same form from its own page"


@pytest.mark.parametrize("name", ["evil.example", "evil.example:8080"])
async def test_page_of_another_name_for_this_machine_is_refused(name: str) -> None:
    """DNS rebinding."""
    site = Site()
    action, body = await site.form()
    for method in ("GET", "POST"):
        headers = {"Host": name, "Origin": f"http://{name}", "Sec-Fetch-Site": "same-origin"}
        assert (await site.send(method, action, headers, body if method == "POST" else ""))[0] == 421
    assert site.held == RECORDS


@pytest.mark.parametrize("body", ["", "confirmation=", "confirmation=1.2", "confirmation=x.y&a&b&c&d&e", "%00", "é"])
async def test_form_without_the_token_changes_nothing(body: str) -> None:
    site = Site()
    code, _ = await site.send("POST", PATH, OWN, body.encode().decode("latin-1"))
    assert (code, site.held) == (403, RECORDS)


async def test_token_is_of_one_change_one_process_and_ten_minutes() -> None:
    site, other = Site(), Site()
    _, body = await site.form()
    another_change = PATH.replace("members", "other")
    assert (await site.send("POST", another_change, OWN, body))[0] == 403
    assert (await other.send("POST", PATH, OWN, body))[0] == 403
    site.clock.now += VALID_S + 1
    code, page = await site.send("POST", PATH, OWN, body)
    assert (code, site.held, other.held) == (403, RECORDS, RECORDS)
    assert "older than 10 minutes, or of another process" in page.text
    assert (await site.send("POST", PATH, OWN, (await site.form())[1]))[0] == 200


async def test_larger_form_is_refused() -> None:
    site = Site()
    code, _ = await site.send("POST", PATH, OWN, "x" * (BODY_MAX + 1))
    assert (code, site.held) == (413, RECORDS)


@pytest.mark.parametrize(("changes", "is_local", "may_change"), [
    ("local", True, True), ("local", False, False), ("any", False, True), ("never", True, False),
])  # fmt: skip
async def test_admin_changes_decides_about_links_forms_and_releases(
    monkeypatch: pytest.MonkeyPatch, changes: Changes, is_local: bool, may_change: bool
) -> None:
    monkeypatch.setattr(admin_pages, "_is_loopback", lambda peer: is_local)
    site = Site(changes)
    _, page = await site.send("GET", "/status", {"Host": OWN["Host"]})
    assert bool([each for each in page.all("a") if each.text.startswith("release")]) is may_change
    assert ("Change" in [each.text for each in page.all("th")]) is may_change
    code, page = await site.send("GET", PATH, {"Host": OWN["Host"]})
    assert (code, bool(list(page.all("form")))) == ((200, True) if may_change else (403, False))
    site.confirmations._pages.changes = "any"
    _, body = await site.form()
    site.confirmations._pages.changes = changes
    code, page = await site.send("POST", PATH, OWN, body)
    assert (code, site.held) == ((200, 0) if may_change else (403, RECORDS))


async def test_path_without_a_change_has_no_form() -> None:
    site = Site()
    for path, expected in (
        ("/status/confirm/groups", 404),
        ("/status/confirm/groups/absent/members/m/release", 404),
        (PATH.replace("m%201", "other"), 404),
        ("/status/confirm/absent", 404),
        ("/status/confirm/livez", 404),
    ):
        code, page = await site.send("GET", path, {"Host": OWN["Host"]})
        assert (code, list(page.all("form")), page.first("h2").text) == (expected, [], "Nothing was changed"), path
    assert (await site.send("DELETE", PATH, OWN))[0] == 405


async def test_release_that_the_journal_refuses_is_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    _, body = await site.form()
    refused: Promise[None] = Promise()
    refused.fail(JournalRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    monkeypatch.setattr(site.world.journal, "append", lambda records: refused)
    code, page = await site.send("POST", PATH, OWN, body)
    assert (code, page.first("h2").text) == (502, "Nothing was changed")
    assert ["durable", "no"] in page.table("Details")


async def test_ids_of_clients_are_escaped_in_every_page() -> None:
    site = Site()
    _, page = await site.send("GET", PATH, {"Host": OWN["Host"]})
    action, body = await site.form()
    _, done = await site.send("POST", action, OWN, body)
    for each in (page, done):
        assert not list(each.all("b"))
        assert not list(each.all("i"))
        assert not list(each.all("script"))
