"""Share groups of the brokers as audit events, derived from forwarded requests and responses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from kafka_share_proxy.audit import sampling
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Context, Routes, header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.observed import forwarded_shares
from kafka_share_proxy.forwarding.observed.forwarded_shares import watched
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record

from tests.support import audit_lines
from tests.support.manual_timers import ManualTimers

TOPIC = bytes(range(16))
SHARE_FETCH, SHARE_ACKNOWLEDGE = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
FETCH, ACKNOWLEDGE = messages.ShareFetchRequest, messages.ShareAcknowledgeRequest
FETCHED, ACKNOWLEDGED = messages.ShareFetchResponse, messages.ShareAcknowledgeResponse


LARGEST = (1 << 63) - 1
KERNELS = (forwarded_shares._watching, forwarded_shares._watching_in_python)


@cache
def plain_routes() -> Routes:
    book = AddressBook(20000, "proxy", lambda *_: True)
    return route_table.build(book, EffectiveVersions(Offer()), Limits(), {})


class World:
    """Routes of a proxy that forwards share groups, with audit on."""

    def __init__(self, kernel: Any) -> None:
        self.timers = ManualTimers()
        self.plain = plain_routes()
        self.audit = Audit(self.timers, 1000, looks_per_s=10.0)
        self.audit.keys._draw = self.audit.loads._draw = lambda: 0.0
        self.routes = watched(self.plain, self.audit, kernel)

    def passes(self, key: int, request: Any, response: Any, version: int = 2) -> bytes | None:
        """A request goes by, and its response: what the client gets in place of it."""
        route = self.routes[header(key, version)]
        frame = bytearray(frames.request(key, version, 7, "client", request)[4:])
        before = bytes(frame)
        treated = route.amend(memoryview(frame))
        assert (treated.key, treated.version) == (route.key, route.version)
        assert bytes(frame) == before
        back = frames.response(key, version, 7, response)[4:]
        return treated.rewrite(memoryview(back), Context(node_id=1))

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        self.audit.end()
        log_events = audit_lines.waiting(self.audit.log)
        return [event for event in log_events if event["kind"] in kinds]


@pytest.fixture(params=KERNELS, ids=("c", "python"))
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def fetched(*acquired: tuple[int, int, int], data: bytes = b"", **fields: Any) -> Any:
    ranges = [FETCHED.AcquiredRecords(first_offset=a, last_offset=b, delivery_count=c) for a, b, c in acquired]
    part = FETCHED.PartitionData(partition_index=3, records=data, acquired_records=ranges, **fields)
    topics = [FETCHED.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])]
    return FETCHED(acquisition_lock_timeout_ms=30000, responses=topics)


def acks(request: Any, topic: Any, partition: Any, *batches: tuple[int, int, list[int]]) -> Any:
    ack_batches = [
        request.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=c) for a, b, c in batches
    ]
    part = partition(partition_index=3, acknowledgement_batches=ack_batches)
    return request(group_id="g", member_id="m", topics=[topic(topic_id=TOPIC, partitions=[part])])


def fetch(*batches: tuple[int, int, list[int]]) -> Any:
    request = acks(FETCH, FETCH.FetchTopic, FETCH.FetchPartition, *batches)
    request.max_bytes = 1 << 20
    return request


def acknowledge(*batches: tuple[int, int, list[int]]) -> Any:
    return acks(ACKNOWLEDGE, ACKNOWLEDGE.AcknowledgeTopic, ACKNOWLEDGE.AcknowledgePartition, *batches)


def acknowledged(code: int = 0) -> Any:
    part = ACKNOWLEDGED.PartitionData(partition_index=3, error_code=code)
    return ACKNOWLEDGED(responses=[ACKNOWLEDGED.ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=[part])])


def settles(world: World) -> list[tuple[int, int, str]]:
    return [(event["first"], event["last"], event["outcome"]) for event in world.events("settle")]


@pytest.mark.parametrize("version", [1, 2])
def test_acquired_records_are_reported_and_their_keys_sampled(world: World, version: int) -> None:
    data = records.build_batch(10, [Record(key=b"k", value=b"v", offset=10 + at) for at in range(8)])
    assert world.passes(SHARE_FETCH, fetch(), fetched((10, 13, 1), (15, 15, 2), data=data), version) is None
    events = world.events("acquire", "fetch", "load", "hot_keys")
    names = ("group", "member", "partition", "first", "last", "attempt", "bytes", "lock_ms", "by")
    assert [tuple(event[name] for name in names) for event in events if event["kind"] == "acquire"] == [
        ("g", "m", 3, 10, 13, 1, len(data), 30000, "brokers"),
        ("g", "m", 3, 15, 15, 2, 0, 30000, "brokers"),
    ]
    by_kind = {event["kind"]: event for event in events}
    assert (by_kind["fetch"]["reader"], by_kind["fetch"]["rows_in"]) == ("share", 8)
    assert (by_kind["load"]["rows"], by_kind["load"]["sampled"]) == (5, 8)


def test_acknowledgements_are_reported_once_the_broker_accepted_them(world: World) -> None:
    """One type covers its batch, else there is one for each offset; renewals end nothing."""
    batches = [(0, 9, [1]), (10, 14, [1, 2, 2, 0, 3]), (15, 19, [4]), (20, 22, [4, 1, 4])]
    world.passes(SHARE_ACKNOWLEDGE, acknowledge(*batches), acknowledged())
    expected = [
        *((0, 9, "accept"), (10, 10, "accept"), (11, 12, "release")),
        *((13, 13, "gap"), (14, 14, "reject"), (21, 21, "accept")),
    ]
    assert settles(world) == expected
    world.passes(SHARE_FETCH, fetch(*batches), fetched())
    assert settles(world) == expected


def test_a_settle_is_reported_with_its_delivery(world: World) -> None:
    """For each piece the delivery count, the time of its acquisition, and the time beyond its first lock by
    renewals.
    """
    world.passes(SHARE_FETCH, fetch(), fetched((0, 4, 1), (5, 9, 3)))
    acquired_ms = world.timers.wall_ms()
    world.timers.advance(20)
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((8, 9, [4])), acknowledged())
    world.timers.advance(15)
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((0, 9, [1])), acknowledged())
    events = world.events("settle", "load")
    names = ("first", "last", "attempt", "t_acquire_ms", "renews", "renew_ms", "start_offset")
    assert [tuple(event[name] for name in names) for event in events if event["kind"] == "settle"] == [
        (0, 4, 1, acquired_ms, 0, 0, None),
        (5, 7, 3, acquired_ms, 0, 0, None),
        (8, 9, 3, acquired_ms, 1, 5_000, None),
    ]
    assert [event["hold_ms"] for event in events if event["kind"] == "load"] == [350_000]


def test_what_is_not_known_of_a_delivery_is_null(world: World) -> None:
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((0, 9, [1])), acknowledged())
    (event,) = world.events("settle")
    unknown = ("attempt", "t_acquire_ms", "renews", "renew_ms", "start_offset")
    assert ([event[name] for name in unknown], event["by"]) == ([None] * 5, "brokers")


def test_refused_acknowledgements_are_not_reported(world: World) -> None:
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((0, 9, [1])), acknowledged(121))
    world.passes(SHARE_FETCH, fetch((0, 9, [1])), fetched(acknowledge_error_code=121))
    refused = FETCHED(error_code=122, responses=[])
    world.passes(SHARE_FETCH, fetch((0, 9, [1])), refused)
    assert world.events("settle", "acquire") == []


def test_responses_are_treated_as_before(world: World) -> None:
    """Addresses in them become those of the proxy, and MaxBytes is lowered as without audit."""
    response = fetched((0, 0, 1))
    response.node_endpoints = [FETCHED.NodeEndpoint(node_id=2, host="broker", port=9092)]
    changed = world.passes(SHARE_FETCH, fetch(), response)
    assert changed is not None
    _, decoded = frames.decode_response(SHARE_FETCH, 2, memoryview(changed)[4:])
    assert decoded.node_endpoints[0].host == "proxy"
    request = fetch()
    request.max_bytes = (1 << 31) - 1
    frame = bytearray(frames.request(SHARE_FETCH, 2, 7, "client", request)[4:])
    world.routes[header(SHARE_FETCH, 2)].amend(memoryview(frame))
    assert frames.decode_request(memoryview(frame))[1].max_bytes < (1 << 31) - 1


def test_unreadable_responses_are_forwarded_and_not_reported(world: World) -> None:
    route = world.routes[header(SHARE_ACKNOWLEDGE, 2)]
    frame = bytes(frames.request(SHARE_ACKNOWLEDGE, 2, 7, "client", acknowledge((0, 9, [1])))[4:])
    plain = world.plain[header(SHARE_ACKNOWLEDGE, 2)]
    assert route.amend(memoryview(bytearray(frame[:-3]))) is plain
    treated = route.amend(memoryview(bytearray(frame)))
    short = frames.response(SHARE_ACKNOWLEDGE, 2, 7, acknowledged())[4:-4]
    arguments = memoryview(short), Context(node_id=1)
    assert outcome(lambda: treated.rewrite(*arguments)) == outcome(lambda: plain.rewrite(*arguments))
    assert world.events("settle") == []


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error)


def test_a_broken_batch_costs_nothing_but_its_fetch_event(world: World) -> None:
    world.passes(SHARE_FETCH, fetch(), fetched((0, 0, 1), data=b"\0" * 70))
    assert len(world.events("acquire")) == 1


def test_other_routes_are_left_alone(world: World) -> None:
    """Routes without a match are forwarded unchanged with audit on."""
    changed = {route.key for name, route in world.routes.items() if route is not world.plain[name]}
    assert changed == {SHARE_FETCH, SHARE_ACKNOWLEDGE}


# The extension and its twin


def amended_response(route: Any, requested: bytes, back: bytes) -> Any:
    """Return what becomes of a response whose request was seen."""
    treated = outcome(lambda: route.amend(memoryview(bytearray(requested))) or route)
    rewrite = getattr(treated, "rewrite", None)
    return treated if rewrite is None else outcome(lambda: rewrite(memoryview(back), Context(1)))


class Both:
    """Two worlds, one by each kernel, that see the same bytes at the same time."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.worlds = [World(kernel) for kernel in KERNELS]
        self.base = self.dice.choice((0, 0, 0, 1 << 62, LARGEST - 65))
        """Offsets are this and up to about 70 more."""

    def message(self, version: int) -> tuple[int, Any, Any]:
        """Return key, request and response."""
        dice, key = self.dice, self.dice.choice((SHARE_FETCH, SHARE_ACKNOWLEDGE))
        batches = [self.batch() for _ in range(dice.choice((0, 1, 1, 3)))]
        request = fetch(*batches) if key == SHARE_FETCH else acknowledge(*batches)
        request.group_id, request.member_id = dice.choice(("g", "g", "h", "é", None)), dice.choice(("m", "n", None))
        code = dice.choice((0, 0, 0, 121))
        if key == SHARE_ACKNOWLEDGE:
            return key, request, acknowledged(code)
        first = self.base + dice.randrange(45)
        ranges = [(first, first + dice.randrange(9), 1), (first + 10, first + 10 + dice.randrange(9), 2)]
        keyed = [Record(key=b"%d" % dice.randrange(3), value=b"v", offset=first + at) for at in range(3)]
        data = dice.choice((b"", b"\0" * 70, records.build_batch(first, keyed), records.build_batch(first, keyed)[:-1]))
        return key, request, fetched(*ranges[: dice.randrange(3)], data=data, acknowledge_error_code=code)

    def batch(self) -> tuple[int, int, list[int]]:
        first, kind = self.base + self.dice.randrange(65), self.dice.choice((0, 1, 2, 3, 4, 5, -1))
        last = first + self.dice.randrange(-1, 12)
        single = self.dice.random() < 0.7
        return (
            first,
            min(last, LARGEST),
            [kind] if single else [self.dice.choice((1, 1, 2, 4)) for _ in range(last - first + 1)],
        )

    def changed(self, frame: bytes) -> bytes:
        """A few bytes of it are others, or it is cut, or something follows."""
        dice, corrupted = self.dice, bytearray(frame)
        if dice.random() < 0.7:
            return frame
        for _ in range(dice.randrange(3)):
            at = dice.randrange(8, len(corrupted))
            corrupted[at] = dice.choice((0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        return bytes(corrupted[: dice.choice((len(corrupted), len(corrupted), dice.randrange(len(corrupted))))])

    def passes(self) -> None:
        version = self.dice.choice((1, 2))
        key, request, response = self.message(version)
        requested = self.changed(frames.request(key, version, 7, "client", request)[4:])
        back = self.changed(frames.response(key, version, 7, response)[4:])
        first, second = (amended_response(world.routes[header(key, version)], requested, back) for world in self.worlds)
        assert first == second

    def reported(self) -> list[list[dict[str, Any]]]:
        """Numbers that no broker has may be among them."""
        for world in self.worlds:
            world.audit.end()
        return [in_order(world.audit.log.take(1_000_000, "p", "c", bytes.hex)) for world in self.worlds]


def in_order(lines: list[bytes]) -> list[dict[str, Any]]:
    """Sort: readers of a second are reported in any order."""
    log_events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in log_events] == list(range(1, len(log_events) + 1))
    fetches = sorted((event for event in log_events if event["kind"] == "fetch"), key=repr_without_seq)
    return [{**event, "seq": 0} for event in [*(each for each in log_events if each["kind"] != "fetch"), *fetches]]


def repr_without_seq(event: dict[str, Any]) -> str:
    return repr({**event, "seq": 0})


@pytest.mark.parametrize("seed", range(40))
def test_extension_and_python_fallback_report_the_same(seed: int) -> None:
    """For any bytes, at the limits of the memory too."""
    compare(seed)


def compare(seed: int) -> None:
    """Show both the same requests and responses, made by this seed; raises AssertionError where they differ."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(forwarded_shares, "DELIVERIES_MAX", 12)
        monkeypatch.setattr(forwarded_shares, "DELIVERIES_OF_ONE_MAX", 5)
        monkeypatch.setattr(sampling, "LOOK_RECORDS_LEAST", 1)  # else a look is due at other reads
        _compare(seed)


def _compare(seed: int) -> None:
    both = Both(seed)
    for number in range(120):
        both.passes()
        later = both.dice.choice((0.0, 0.25, 20.0)) if number % 3 == 0 else 0.0
        for world in both.worlds:
            world.timers.advance(later)
            world.audit.tick()
    first, second = both.reported()
    for one, other in zip(first, second, strict=True):
        assert {**one, "hold_ms": 0} == {**other, "hold_ms": 0}
        assert one.get("hold_ms", 0) == pytest.approx(other.get("hold_ms", 0), abs=1)


@pytest.mark.parametrize("last", [LARGEST - 1, LARGEST])
def test_ranges_up_to_the_largest_number_are_settled(world: World, last: int) -> None:
    world.passes(SHARE_FETCH, fetch(), fetched((last - 5, last, 1)))
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((last - 5, last - 3, [4]), (last - 5, last, [1])), acknowledged())
    assert settles(world) == [(last - 5, last - 3, "accept"), (last - 2, last, "accept")]


def test_more_acknowledge_types_than_there_are_offsets_are_left_out(world: World) -> None:
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((LARGEST - 1, LARGEST, [1, 2, 3, 1])), acknowledged())
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((LARGEST - 4, LARGEST - 1, [1, 1, 1, 2])), acknowledged())
    assert settles(world) == [(LARGEST - 4, LARGEST - 2, "accept"), (LARGEST - 1, LARGEST - 1, "release")]
