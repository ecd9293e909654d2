"""The status page: readiness, the proxy and its fleet, and a section for each feature."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import pytest
from kafka_share_proxy.app.observing import admin_listener, status_html
from kafka_share_proxy.app.observing.status_page import SLICE, ReadyProbes, StatusPage
from kafka_share_proxy.feature.feature import Feature, Probe
from kafka_share_proxy.feature.status import DETAIL_ROWS_MAX, StatusSection, StatusTable
from kafka_share_proxy.forwarding.client_software import ClientSoftware
from kafka_share_proxy.forwarding.plane_statistics import PlaneStatistics
from kafka_share_proxy.loop.promise import Promise, settled
from kafka_share_proxy.wire.values import Address

from tests.app.observing.test_admin_listener import running, send_request
from tests.forwarding.plane_world import FETCH, request, world
from tests.support.html_tree import Element, read

HOSTILE = "<b>&\"'"


class Plain:
    """An object with these attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Book(NamedTuple):
    nodes: dict[int, Address]
    unbound: dict[int, Address]

    def ours_of(self, node_id: int) -> Address:
        return Address("proxy.example", 9100 + node_id)


def statistics(**figures: int) -> Any:
    return Plain(**(dict.fromkeys(PlaneStatistics.__dataclass_fields__, 0) | figures))


def parts(*features: Feature, home: Any = None, connections: Sequence[Any] = ()) -> Any:
    book = Book({1: Address("b1", 9092), 2: Address("b2", 9092)}, {3: Address("b3", 9092)})
    return Plain(
        features=features,
        home=home,
        services=Plain(book=book),
        plane=Plain(
            statistics=lambda: statistics(connections=7, in_flight=2),
            connections=lambda: connections,
            reactor=Plain(now=lambda: 0.0),
        ),
        vanished=lambda: {2: "the cluster has not named it for 12 s"},
        config=Plain(bootstrap_address=Address("proxy.example", 9092)),
    )


def feature(title: str, value: str, steps: int = 0) -> Feature:
    def status() -> Generator[None, None, StatusSection]:
        for _ in range(steps):
            yield
        return StatusSection(title, tables=(StatusTable("Things", ("Thing",), ((value,),)),))

    return Feature(probe=Probe(path=title), status=status)


READY: ReadyProbes = {
    b"/readyz": lambda: (True, {"reasons": []}),
    b"/readyz/views": lambda: (False, {"reasons": ["plans are <not> known"], "missing": ["READ on x"]}),
}


def page_of(serving_parts: Any, ready: ReadyProbes = READY) -> Element:
    return read(b"".join(StatusPage(lambda: serving_parts, ready).steps()).decode())


def test_readiness_is_shown_with_the_reasons() -> None:
    page = page_of(None)
    assert page.table("What clients can use") == [["forwarding", "yes"], ["views", "no"]]
    notes = [each.text for each in page.all("p")]
    assert notes == ["The cluster has not responded yet.", "views: plans are <not> known", "views: READ on x"]


def test_a_reason_that_concerns_several_is_shown_once() -> None:
    reason = {"reasons": ["upstream is not reachable"]}
    page = page_of(parts(), {b"/readyz": lambda: (False, reason), b"/readyz/views": lambda: (False, reason)})
    assert page.first("p").text == "forwarding, views: upstream is not reachable"


def test_brokers_are_shown_with_those_that_vanished_or_are_left_out() -> None:
    page = page_of(parts())
    assert page.table("Brokers") == [
        ["1", "b1:9092", "proxy.example:9101", "listed"],
        ["2", "b2:9092", "proxy.example:9102", "the cluster has not named it for 12 s"],
        ["3", "b3:9092", "–", "left out: no listener"],
    ]
    assert ["Client connections", "7"] in page.table("Figures")
    assert "Clients bootstrap at proxy.example:9092." in page.text


def test_members_of_the_fleet_are_shown_with_links_that_are_missing() -> None:
    home = Plain(served={1, 2, 3}, links=Plain(members={"p2:19094": object(), f"p3{HOSTILE}": None}))
    page = page_of(parts(home=home))
    assert page.table("Other proxies of the fleet") == [["p2:19094", "linked"], [f"p3{HOSTILE}", "no link"]]
    assert ["Partitions of state owned here", "3"] in page.table("Figures")


def test_connections_are_shown_with_client_and_what_they_wait_for() -> None:
    with world() as w:
        client, _ = w.pair()
        (connection,) = w.plane.connections()
        connection.software = ClientSoftware(HOSTILE, "librdkafka", "2.16")
        client.send(request(FETCH, 11, 1))
        page = page_of(parts(connections=[connection]))
    ((host, client_id, software, *_),) = page.table("Waiting longest")
    assert (host, client_id, software) == ("127.0.0.1", HOSTILE, "librdkafka 2.16")


def test_of_many_connections_those_are_shown_that_wait_longest_and_clients_are_served_in_between() -> None:
    with world() as w:
        clients = [w.pair()[0] for _ in range(DETAIL_ROWS_MAX + 5)]
        connections = list(w.plane.connections())
        connections[-1].timeouts.waits_s = 9
        serving_parts = parts(connections=connections * 50)
        page = page_of(serving_parts)
        pauses = list(StatusPage(lambda: serving_parts, READY).steps()).count(b"")
        del clients
    rows = page.table("Waiting longest")
    assert len(rows) == DETAIL_ROWS_MAX
    assert rows[0][7] == "9.0 s"
    assert f"{len(connections) * 50 - DETAIL_ROWS_MAX} more are not shown." in page.text
    assert pauses == -(-len(connections) * 50 // SLICE)


def test_every_feature_with_a_section_is_shown_and_clients_are_served_in_between() -> None:
    serving_parts = parts(feature("Views", HOSTILE, steps=3), Feature(probe=Probe(path="bare")), feature("Others", "x"))
    page = page_of(serving_parts)
    assert [each.text for each in page.all("h2")] == ["Readiness", "This proxy", "Connections", "Views", "Others"]
    assert page.table("Things") == [[HOSTILE]]
    assert list(StatusPage(lambda: serving_parts, READY).steps()).count(b"") == 3


def pages() -> Any:
    return StatusPage(lambda: parts(feature("Views", "a view")), READY).steps


@pytest.mark.parametrize("path", ["/", "/status", "/status?anything"])
async def test_the_page_is_served_with_its_policy(path: str) -> None:
    async with running(status=pages()) as (dial, _):
        status, headers, body = await send_request(dial, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    for name, value in status_html.HEADERS:
        assert headers[name.lower()] == value.lower()
    assert read(body.decode()).table("Things") == [["a view"]]


async def test_the_page_is_read_only_and_only_for_names_of_this_listener() -> None:
    async with running(status=pages()) as (dial, _):
        for request, expected in (
            (b"POST /status HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
            (b"HEAD /status HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
            (b"GET /status HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
            (b"GET /status/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ):
            status, _, body = await send_request(dial, request)
            assert status == expected
            assert b"a view" not in body


async def test_the_page_waits_for_look_ups_at_brokers() -> None:
    lookups: list[int] = []

    def begin() -> Promise[None]:
        lookups.append(1)
        return settled(None)

    async with running(status=pages(), lookups=[begin]) as (dial, _):
        await send_request(dial, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not lookups
        await send_request(dial, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert lookups == [1]


async def test_a_listener_without_a_page_does_not_name_it() -> None:
    async with running() as (dial, _):
        status, _, body = await send_request(dial, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (status, b"/status" in body) == (404, False)
    assert admin_listener.STATUS_PATHS == (b"/", b"/status")
