"""Messages read and written in slices: the same result, with pauses, and with a limit on the number of elements."""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest
from kafka_share_proxy.wire.codec.source import PAUSE_EVERY
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError, TooManyElements

from tests.wire.samples import Samples, every_codec

ENOUGH = 1_000_000


def driven(slices: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return what a generator returns, and how often it paused."""
    for pauses in range(ENOUGH):
        try:
            next(slices)
        except StopIteration as stop:
            return stop.value, pauses
    raise AssertionError("it never ends")


def test_every_message_is_the_same_in_slices() -> None:
    for name, version in every_codec():
        codec = registry.codec(name, version)
        message = Samples(f"slices-{name}-{version}", tags=True).message(codec.spec, version)
        data = codec.encode(message)
        parts: list[Any] = []
        driven(codec.encode_in_slices(message, parts))
        assert b"".join(parts) == data
        read, _ = driven(codec.decode_in_slices(data, 0, ENOUGH))
        assert codec.encode(read) == data


def test_bytes_too_many_and_too_few_are_refused_in_slices() -> None:
    codec = registry.request(42, 2)
    data = codec.encode(registry.message("DeleteGroupsRequest")(groups_names=["a", "b"]))
    for broken in (data + b"\0", data[:-1], data[:2]):
        with pytest.raises(RemoteProtocolError):
            driven(codec.decode_in_slices(broken, 0, ENOUGH))


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (42, 2, lambda _, count: {"groups_names": ["group"] * count}),
        (15, 4, lambda _, count: {"groups": ["group"] * count}),
        (32, 4, lambda m, count: {"resources": [m.DescribeConfigsResource(resource_type=32)] * count}),
        (44, 1, lambda m, count: {"resources": [m.AlterConfigsResource(resource_type=32, configs=[])] * count}),
        (78, 2, lambda m, count: {"topics": [m.FetchTopic(partitions=[m.FetchPartition()] * count)]}),
        (90, 1, lambda m, count: {"groups": [m.DescribeShareGroupOffsetsRequestGroup(topics=None)] * count}),
    ],
)  # fmt: skip
def test_decoding_in_slices_refuses_too_many_elements_before_building_any(key: int, version: int, fields: Any) -> None:
    """A hostile 1 MiB costs no more than a small request of the same kind."""
    codec = registry.request(key, version)
    message = codec.message_class(**fields(codec.message_class, 10 * PAUSE_EVERY))
    data = codec.encode(message)
    _, pauses = driven(codec.decode_in_slices(data, 0, ENOUGH))
    assert pauses >= 9
    parts: list[Any] = []
    assert driven(codec.encode_in_slices(message, parts))[1] >= 9
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements):
            driven(codec.decode_in_slices(data, 0, 9 * PAUSE_EVERY))
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data) + 20_000
    finally:
        tracemalloc.stop()


def test_parts_of_a_sliced_encoding_grow_with_the_slices_not_with_the_elements() -> None:
    """Joining is one step for all parts, in which no other client is served."""
    codec = registry.response(16, 4)
    response = codec.message_class

    def parts_of(slices: int) -> int:
        listed = [response.ListedGroup(group_id=f"group-{number}") for number in range(slices * PAUSE_EVERY)]
        parts: list[Any] = []
        driven(codec.encode_in_slices(response(groups=listed), parts))
        return len(parts)

    assert parts_of(100) - parts_of(10) == 90


def test_records_and_large_parts_are_not_copied_in_slices() -> None:
    codec = registry.response(1, 12)
    response = codec.message_class
    records = [memoryview(bytes(10)), memoryview(bytes(100_000))] * PAUSE_EVERY
    partitions = [response.PartitionData(records=each) for each in records]
    topics = [response.FetchableTopicResponse(topic="t", partitions=partitions)]
    parts: list[Any] = []
    driven(codec.encode_in_slices(response(responses=topics), parts))
    large_parts = [part for part in parts if type(part) is memoryview]
    assert all(part is each for part, each in zip(large_parts, records, strict=True))


def test_numbers_and_tags_count_as_elements() -> None:
    """Partitions do one by one, acknowledgement types (one for each record) by the sixteen, unknown tags one by one."""
    message = registry.message("DescribeShareGroupOffsetsRequest")
    topic = message.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=list(range(1000)))
    group = message.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[topic])
    data = registry.request(90, 1).encode(message(groups=[group]))
    driven(registry.request(90, 1).decode_in_slices(data, 0, 1002))
    with pytest.raises(TooManyElements):
        driven(registry.request(90, 1).decode_in_slices(data, 0, 1001))
    fetch = registry.message("ShareFetchRequest")
    batch = fetch.AcknowledgementBatch(first_offset=0, last_offset=1599, acknowledge_types=[1] * 1600)
    partition = fetch.FetchPartition(acknowledgement_batches=[batch])
    data = registry.request(78, 2).encode(fetch(topics=[fetch.FetchTopic(partitions=[partition])]))
    driven(registry.request(78, 2).decode_in_slices(data, 0, 3 + 100))
    with pytest.raises(TooManyElements):
        driven(registry.request(78, 2).decode_in_slices(data, 0, 3 + 99))
    tagged = registry.message("DeleteGroupsRequest")(groups_names=[])
    tagged.unknown_tags = tuple((number, b"") for number in range(200))
    data = registry.request(42, 2).encode(tagged)
    with pytest.raises(TooManyElements):
        driven(registry.request(42, 2).decode_in_slices(data, 0, 199))
