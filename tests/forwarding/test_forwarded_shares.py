"""Share groups of the brokers, as audit events: what requests and answers say that pass."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.audit.events import lines
from proxy.audit.stream import Audit
from proxy.forwarding import route_table
from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.forwarded_shares import watched
from proxy.forwarding.offered_versions import EffectiveVersions, Offer
from proxy.forwarding.routes import Context, Kind, header
from proxy.wire import frames, messages, records
from proxy.wire.api_key import ApiKey
from proxy.wire.records import Record
from proxy.wire.values import Limits
from tests.support import audit_lines
from tests.support.ports import ManualTimers

TOPIC = bytes(range(16))
SHARE_FETCH, SHARE_ACKNOWLEDGE = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
FETCH, ACKNOWLEDGE = messages.ShareFetchRequest, messages.ShareAcknowledgeRequest
FETCHED, ACKNOWLEDGED = messages.ShareFetchResponse, messages.ShareAcknowledgeResponse


class World:
    """Routes of a proxy that forwards share groups, with audit on."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        book = AddressBook(20000, "proxy", lambda *_: True)
        self.plain = route_table.build(book, EffectiveVersions(Offer()), Limits(), {})
        self.audit = Audit(self.timers, 1000, looks_per_s=10.0)
        self.routes = watched(self.plain, self.audit)

    def passes(self, key: int, request: Any, answer: Any, version: int = 2) -> bytes | None:
        """A request goes by, and its answer: what the client gets in place of it."""
        route = self.routes[header(key, version)]
        frame = bytearray(frames.request(key, version, 7, "client", request)[4:])
        before = bytes(frame)
        treated = route.amend(memoryview(frame))
        assert (treated.key, treated.version, treated.kind) == (route.key, route.version, Kind.ANSWER)
        assert bytes(frame) == before
        back = frames.response(key, version, 7, answer)[4:]
        return treated.rewrite(memoryview(back), Context(node_id=1))

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        self.audit.end()
        found = audit_lines.events(lines(self.audit.take(1_000_000), "p", "c", bytes.hex))
        return [event for event in found if event["kind"] in kinds]


@pytest.fixture
def world() -> World:
    return World()


def fetched(*acquired: tuple[int, int, int], data: bytes = b"", **fields: Any) -> Any:
    ranges = [FETCHED.AcquiredRecords(first_offset=a, last_offset=b, delivery_count=c) for a, b, c in acquired]
    part = FETCHED.PartitionData(partition_index=3, records=data, acquired_records=ranges, **fields)
    topics = [FETCHED.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=[part])]
    return FETCHED(acquisition_lock_timeout_ms=30000, responses=topics)


def acks(request: Any, topic: Any, partition: Any, *batches: tuple[int, int, list[int]]) -> Any:
    made = [request.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=c) for a, b, c in batches]
    part = partition(partition_index=3, acknowledgement_batches=made)
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
def test_what_is_acquired_is_told_and_its_keys_are_seen(world: World, version: int) -> None:
    data = records.build_batch(10, [Record(key=b"k", value=b"v", offset=10 + at) for at in range(6)])
    assert world.passes(SHARE_FETCH, fetch(), fetched((10, 13, 1), (15, 15, 2), data=data), version) is None
    told = world.events("acquire", "fetch", "load", "hot_keys")
    names = ("group", "member", "partition", "first", "last", "attempt", "bytes", "lock_ms", "by")
    assert [tuple(event[name] for name in names) for event in told if event["kind"] == "acquire"] == [
        ("g", "m", 3, 10, 13, 1, len(data), 30000, "brokers"),
        ("g", "m", 3, 15, 15, 2, 0, 30000, "brokers"),
    ]
    by_kind = {event["kind"]: event for event in told}
    assert (by_kind["fetch"]["reader"], by_kind["fetch"]["rows_in"]) == ("share", 6)
    assert (by_kind["load"]["rows"], by_kind["load"]["sampled"]) == (5, 6)


def test_acknowledgements_are_told_once_the_broker_took_them(world: World) -> None:
    """One type stands for its batch, else there is one for each offset; renewals end nothing."""
    batches = [(0, 9, [1]), (10, 14, [1, 2, 2, 0, 3]), (15, 19, [4]), (20, 22, [4, 1, 4])]
    world.passes(SHARE_ACKNOWLEDGE, acknowledge(*batches), acknowledged())
    expected = [
        *((0, 9, "accept"), (10, 10, "accept"), (11, 12, "release")),
        *((13, 13, "gap"), (14, 14, "reject"), (21, 21, "accept")),
    ]
    assert settles(world) == expected
    world.passes(SHARE_FETCH, fetch(*batches), fetched())
    assert settles(world) == expected


def test_a_settle_tells_of_the_delivery_that_passed_before(world: World) -> None:
    """Of each piece the delivery count, since when it was held, and how long beyond its first lock by renewals."""
    world.passes(SHARE_FETCH, fetch(), fetched((0, 4, 1), (5, 9, 3)))
    acquired_ms = world.timers.wall_ms()
    world.timers.advance(20)
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((8, 9, [4])), acknowledged())
    world.timers.advance(15)
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((0, 9, [1])), acknowledged())
    told = world.events("settle", "load")
    names = ("first", "last", "attempt", "t_acquire_ms", "renews", "renew_ms", "start_offset")
    assert [tuple(event[name] for name in names) for event in told if event["kind"] == "settle"] == [
        (0, 4, 1, acquired_ms, 0, 0, None),
        (5, 7, 3, acquired_ms, 0, 0, None),
        (8, 9, 3, acquired_ms, 1, 5_000, None),
    ]
    assert [event["hold_ms"] for event in told if event["kind"] == "load"] == [350_000]


def test_what_is_not_known_of_a_delivery_is_null(world: World) -> None:
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((0, 9, [1])), acknowledged())
    (event,) = world.events("settle")
    unknown = ("attempt", "t_acquire_ms", "renews", "renew_ms", "start_offset")
    assert ([event[name] for name in unknown], event["by"]) == ([None] * 5, "brokers")


def test_refused_acknowledgements_are_not_told(world: World) -> None:
    world.passes(SHARE_ACKNOWLEDGE, acknowledge((0, 9, [1])), acknowledged(121))
    world.passes(SHARE_FETCH, fetch((0, 9, [1])), fetched(acknowledge_error_code=121))
    refused = FETCHED(error_code=122, responses=[])
    world.passes(SHARE_FETCH, fetch((0, 9, [1])), refused)
    assert world.events("settle", "acquire") == []


def test_answers_are_treated_as_ever(world: World) -> None:
    """Addresses in them become those of the proxy, and MaxBytes is lowered as without audit."""
    answer = fetched((0, 0, 1))
    answer.node_endpoints = [FETCHED.NodeEndpoint(node_id=2, host="broker", port=9092)]
    changed = world.passes(SHARE_FETCH, fetch(), answer)
    assert changed is not None
    _, seen = frames.decode_response(SHARE_FETCH, 2, memoryview(changed)[4:])
    assert seen.node_endpoints[0].host == "proxy"
    request = fetch()
    request.max_bytes = (1 << 31) - 1
    frame = bytearray(frames.request(SHARE_FETCH, 2, 7, "client", request)[4:])
    world.routes[header(SHARE_FETCH, 2)].amend(memoryview(frame))
    assert frames.decode_request(memoryview(frame))[1].max_bytes < (1 << 31) - 1


def test_what_cannot_be_read_passes_and_tells_nothing(world: World) -> None:
    route = world.routes[header(SHARE_ACKNOWLEDGE, 2)]
    frame = bytes(frames.request(SHARE_ACKNOWLEDGE, 2, 7, "client", acknowledge((0, 9, [1])))[4:])
    plain = world.plain[header(SHARE_ACKNOWLEDGE, 2)]
    assert route.amend(memoryview(bytearray(frame[:-3]))) is plain
    treated = route.amend(memoryview(bytearray(frame)))
    short = frames.response(SHARE_ACKNOWLEDGE, 2, 7, acknowledged())[4:-4]
    assert outcome(treated.rewrite, short) == outcome(plain.rewrite, short)
    assert world.events("settle") == []


def outcome(rewrite: Any, frame: bytes) -> Any:
    try:
        return rewrite(memoryview(frame), Context(node_id=1))
    except Exception as error:
        return type(error)


def test_a_broken_batch_costs_nothing_but_its_fetch_event(world: World) -> None:
    world.passes(SHARE_FETCH, fetch(), fetched((0, 0, 1), data=b"\0" * 70))
    assert len(world.events("acquire")) == 1


def test_other_routes_are_left_alone(world: World) -> None:
    """What passes without a look does so with audit on."""
    changed = {route.key for name, route in world.routes.items() if route is not world.plain[name]}
    assert changed == {SHARE_FETCH, SHARE_ACKNOWLEDGE}
