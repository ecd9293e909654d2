"""Nothing is written to a view, whichever way it is named."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.forwarding.dispatch.early_matches import ELEMENTS_MAX
from kafka_share_proxy.views.apis.k00_produce import NO_RESPONSE, may_name_view
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.values import ZERO_UUID

from tests.support.view_broker import World, build

V = "__view.r4.orders"
NAMED, BY_ID = range(3, 13), 13
BATCH = b"x" * 300


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 1)
    world.ensure(V)
    return world


def topic(world: World, name: str, version: int, *records: bytes) -> dict[str, Any]:
    data = [{"index": index, "records": each} for index, each in enumerate(records or (BATCH,))]
    identity = {"name": name} if version < BY_ID else {"topic_id": world.cluster.topics[name].topic_id}
    return {**identity, "partition_data": data}


def request(world: World, version: int, *names: str, acks: int = -1, **fields: Any) -> dict[str, Any]:
    return {"acks": acks, "timeout_ms": 1, "topic_data": [topic(world, name, version) for name in names]} | fields


@pytest.mark.parametrize("version", [*NAMED, BY_ID])
@pytest.mark.parametrize("transactional_id", [None, "tx" * 40])
def test_a_request_is_inspected_only_if_it_names_a_view(
    world: World, version: int, transactional_id: str | None
) -> None:
    """First or last, among topics with several partitions, with or without a transactional id."""
    for names in (("orders",), ("orders", "orders"), ("orders",) * 5):
        fields = request(world, version, *names, transactional_id=transactional_id)
        assert not world.is_served(ApiKey.PRODUCE, version, **fields)
    for names in ((V,), (V, "orders"), ("orders", V), ("orders", "orders", V)):
        fields = request(world, version, *names, transactional_id=transactional_id)
        assert world.is_served(ApiKey.PRODUCE, version, **fields)


def test_several_partitions_and_none_are_passed_over(world: World) -> None:
    """Records may be null, and a topic may have no partition."""
    for version in (8, 12, BY_ID):
        empty = topic(world, "orders", version)
        empty["partition_data"] = []
        many = topic(world, "orders", version, b"", BATCH, b"y" * 20_000)
        null = topic(world, "orders", version, BATCH)
        null["partition_data"][0]["records"] = None
        data = [empty, many, null]
        assert not world.is_served(ApiKey.PRODUCE, version, acks=1, timeout_ms=1, topic_data=data)
        assert world.is_served(
            ApiKey.PRODUCE, version, acks=1, timeout_ms=1, topic_data=[*data, topic(world, V, version)]
        )


@pytest.mark.parametrize("version", [3, 8, 9, 12, BY_ID])
def test_an_incomplete_request_is_inspected_later(world: World, version: int) -> None:
    """A beginning never passes that might be followed by a view; one whose only topic is named does."""
    may_name = may_name_view(world.catalog).matcher(ApiKey.PRODUCE, version)
    frame = world.frame(ApiKey.PRODUCE, version, **request(world, version, "orders", V))
    first = bytes(frame).index(BATCH)
    assert all(may_name(frame[:end]) for end in range(12, len(frame)))
    alone = world.frame(ApiKey.PRODUCE, version, **request(world, version, "orders"))
    assert not may_name(alone[: first + 10])


@pytest.mark.parametrize("version", [8, 12, BY_ID])
def test_a_request_with_very_many_partitions_is_handled_in_slices(world: World, version: int) -> None:
    """The names of views are looked for in slices, once it is decoded."""
    most = topic(world, "orders", version, *[b""] * (ELEMENTS_MAX - 10))
    assert not world.is_served(
        ApiKey.PRODUCE, version, **{**request(world, version), "topic_data": [most, topic(world, "orders", version)]}
    )
    more = topic(world, "orders", version, *[b""] * ELEMENTS_MAX)
    last = topic(world, "orders", version)
    assert world.is_served(ApiKey.PRODUCE, version, **{**request(world, version), "topic_data": [more, last]})


def test_bytes_that_are_no_request_are_inspected(world: World) -> None:
    """The decoder says what is wrong with them."""
    for frame in (b"", b"\0\0\0\x0c", b"\0\0\0\x0c" + b"\xff" * 40, b"\0\0\0\x08" + b"\x7f" * 40):
        version = frame[3] if frame else 12
        assert may_name_view(world.catalog).matcher(ApiKey.PRODUCE, version)(memoryview(frame))


@pytest.mark.parametrize("version", [3, 8, 9, 12, BY_ID])
def test_produce_to_a_view_returns_invalid_topic_exception(world: World, version: int) -> None:
    """INVALID_TOPIC_EXCEPTION ends a producer's attempts immediately; nothing is forwarded."""
    response = world.call(ApiKey.PRODUCE, version, **request(world, version, V))
    (topic_response,) = response.responses
    assert [(part.index, part.error_code, part.base_offset) for part in topic_response.partition_responses] == [
        (0, 17, -1)
    ]
    assert bytes(topic_response.topic_id) == (world.cluster.topics[V].topic_id if version == BY_ID else ZERO_UUID)
    assert world.cluster.count(ApiKey.PRODUCE) == 0
    assert len(world.noted("view-produce-refused")) == 1


@pytest.mark.parametrize("version", [3, 9, 12, BY_ID])
def test_other_partitions_of_the_request_are_produced(world: World, version: int) -> None:
    """And both responses are merged."""
    response = world.call(ApiKey.PRODUCE, version, **request(world, version, "orders", V))
    codes = [part.error_code for topic_response in response.responses for part in topic_response.partition_responses]
    assert sorted(codes) == [0, 17]
    ((_, sent),) = [requested for requested in world.cluster.requested if requested[0] == ApiKey.PRODUCE]
    assert len(sent.topic_data) == 1
    assert bytes(sent.topic_data[0].partition_data[0].records) == BATCH


def test_without_acks_there_is_no_response_and_the_rest_is_produced(world: World) -> None:
    """The rest goes with acks=1, whose response is dropped here: the client expects none."""
    assert world.call(ApiKey.PRODUCE, 9, **request(world, 9, V, acks=0)) == NO_RESPONSE
    assert world.cluster.count(ApiKey.PRODUCE) == 0
    assert world.call(ApiKey.PRODUCE, 9, **request(world, 9, "orders", V, acks=0)) == NO_RESPONSE
    ((_, sent),) = [requested for requested in world.cluster.requested if requested[0] == ApiKey.PRODUCE]
    assert [each.name for each in sent.topic_data] == ["orders"]


def test_a_request_without_views_is_forwarded_unchanged(world: World) -> None:
    """The look may have been wrong about it."""
    assert world.call(ApiKey.PRODUCE, 12, **request(world, 12, "orders")) is None


@pytest.mark.parametrize("version", [*NAMED, BY_ID])
@pytest.mark.parametrize("name", ["_", "__", "__view", "__views", "_view.r2.x", "a", "z" * 200])
@pytest.mark.parametrize("client_id", [None, "", "c" * 300])
def test_names_that_only_begin_like_a_view_pass(world: World, version: int, name: str, client_id: str | None) -> None:
    """Short ones, long ones, with any client id."""
    if name not in world.cluster.topics:
        world.cluster.make(name, 1)
    message = build("ProduceRequest", request(world, version, name))
    frame = memoryview(frames.request(ApiKey.PRODUCE, version, 1, client_id, message))[4:]
    may_name = may_name_view(world.catalog).matcher(ApiKey.PRODUCE, version)
    assert not may_name(frame)
    viewed = build("ProduceRequest", request(world, version, V))
    assert may_name(memoryview(frames.request(ApiKey.PRODUCE, version, 1, client_id, viewed))[4:])
