"""The reader of prefixes says what the codec says, of any request cut anywhere."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from types import FrameType
from typing import Any

import pytest
from kafka_share_proxy.wire.codec import frames, headers, prefixes
from kafka_share_proxy.wire.codec.prefixes import AnyBegins, ArrayAt, EachOf, FieldOf, PlaceOf, PrefixReader, Unread
from kafka_share_proxy.wire.codec.source import Source
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES, FieldSpec
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError

from tests.support.repeated import repeated
from tests.wire.samples import Samples

VERSIONS = [
    (key, version)
    for key in registry.API_KEYS
    for version in range(registry.versions(key)[0], registry.versions(key)[1] + 1)
]
CLIENT_IDS = (None, "", "client-1", "ü" * 200)
HEADER_TAGS = ((), ((9, b"x" * 200), (70, b"")))
EVERY_VERSION = repeated("key, version", VERSIONS)

Wanted = tuple[prefixes.RequestedValue, Callable[[Any], Any]]
"""A wish, and how its value is had from the decoded message."""


def is_readable(field: FieldSpec) -> bool:
    return field.struct is None and (field.type == "string" or field.type in FIXED_SIZES)


def wishes(key: int, version: int) -> Iterator[Wanted]:
    """Everything that can be wanted of a request."""
    source = Source(registry.request_spec(key), version)
    for field in source.plain_fields(source.spec.root):
        value = attrgetter(field.attribute)
        if field.is_array and field.struct is not None:
            yield ArrayAt(field.name), value
            yield from wishes_of_elements(field, source.plain_fields(field.struct))
        elif field.is_array:
            yield EachOf(field.name), value
        elif is_readable(field):
            yield FieldOf(field.name), value


def wishes_of_elements(array: FieldSpec, fields: list[FieldSpec]) -> Iterator[Wanted]:
    for field in fields:
        if field.is_array or not is_readable(field):
            continue
        values = partial(each, array=array.attribute, name=field.attribute)
        yield EachOf(array.name, (field.name,)), values
        if field.type == "string":
            yield AnyBegins(array.name, field.name, "topic"), partial(any_begins, values)


def any_begins(values: Callable[[Any], Any], message: Any) -> bool:
    return any((each or "").startswith("topic") for each in values(message) or ())


def each(message: Any, array: str, name: str) -> Any:
    entries = getattr(message, array)
    return None if entries is None else [getattr(entry, name) for entry in entries]


def frame_of(key: int, version: int, seed: object, tags: bool = True) -> tuple[Any, bytes]:
    """A message, and the frame without its size that the codec makes of it."""
    random_ = random.Random(str((key, version, seed)))
    message = Samples((key, version, seed), tags=tags).message(registry.request_spec(key), version)
    header_tags = random_.choice(HEADER_TAGS) if headers.request_header_version(key, version) == 2 else ()
    header = headers.RequestHeader(key, version, 5, random_.choice(CLIENT_IDS), header_tags)
    return message, headers.encode_request_header(header) + registry.request(key, version).encode(message)


def same(wish: prefixes.RequestedValue, actual: Any, expected: Any) -> bool:
    if isinstance(wish, ArrayAt):
        return bool(actual[1] == (-1 if expected is None else len(expected)))
    return bool(actual == expected)


def readers(key: int, version: int) -> list[tuple[prefixes.RequestedValue, PrefixReader, Callable[[Any], Any]]]:
    return [(wish, prefixes.of_request(key, version, wish), value) for wish, value in wishes(key, version)]


@EVERY_VERSION
def test_a_prefix_is_read_as_the_codec_reads_the_whole(key: int, version: int) -> None:
    """Cut at every length (long ones at some): more bytes are needed up to one, and from there on it is the value."""
    for wish, read, value in readers(key, version):
        message, frame = frame_of(key, version, wish)
        ends = sorted({*range(min(len(frame), 1000)), *random.Random(str(wish)).choices(range(len(frame)), k=100)})
        for size in (len(frame), prefixes.SIZE_UNKNOWN):
            values = [read(memoryview(frame)[:end], size) for end in (*ends, len(frame))]
            come = [each is not Unread.MORE_BYTES for each in values]
            assert come == sorted(come), wish
            assert come[-1], wish
            assert all(same(wish, each, value(message)) for each in values[come.index(True) :]), wish


@EVERY_VERSION
def test_invalid_requests_are_refused_or_read_as_by_the_codec(key: int, version: int) -> None:
    """Changed and cut anywhere: nothing but RemoteProtocolError is raised, and only where the codec refuses as well.

    What the codec reads is read, and is the same.
    """
    random_ = random.Random(f"{key} {version}")
    for wish, read, value in readers(key, version):
        for seed in range(6):
            _, frame = frame_of(key, version, (wish, seed))
            data = bytearray(frame)
            for _ in range(random_.randrange(4)):
                data[random_.randrange(8, len(data))] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
            data = data[: random_.choice((len(data), random_.randrange(8, len(data) + 1)))]
            decoded = decoded_or_none(bytes(data))
            actual = read_or_none(read, data)
            if decoded is not None:
                assert same(wish, actual, value(decoded)), wish


def decoded_or_none(frame: bytes) -> Any:
    try:
        return frames.decode_request(frame)[1]
    except RemoteProtocolError:
        return None


def read_or_none(read: PrefixReader, data: bytearray) -> Any:
    try:
        value = read(data, len(data))
    except RemoteProtocolError:
        return None
    assert value is not Unread.MORE_BYTES  # all of it has come
    return value


@EVERY_VERSION
def test_work_is_bounded_by_the_received_bytes(key: int, version: int) -> None:
    """For any counts and lengths: lines of generated code that ran, counted by a trace."""
    random_ = random.Random(f"{key} {version}")
    for wish, read, _ in readers(key, version):
        for filler in (b"\x7f", b"\xff\xff\xff\x07", b"\x00", b"\x00\x0f\x42\x40", b"\x01"):
            _, frame = frame_of(key, version, wish)
            data = frame[: random_.randrange(8, len(frame) + 1)][:60] + filler * (120 // len(filler))
            ran = lines_run(lambda data=data, read=read: read(memoryview(data)))  # type: ignore[misc]
            assert ran < 40 * (len(data) + 8), (wish, filler, ran)


def lines_run(function: Callable[[], Any]) -> int:
    ran = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal ran
        ran += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except RemoteProtocolError:
        ran += 1
    finally:
        sys.settrace(before)
    return ran


@pytest.mark.parametrize("key", [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.TXN_OFFSET_COMMIT])
def test_group_ids_of_requests_about_offsets(key: ApiKey) -> None:
    """Every version is covered: one id, or a list from OffsetFetch v8 on."""
    message = registry.message(f"{registry.API_KEYS[key]}Request")
    for version in range(registry.versions(key)[0], registry.versions(key)[1] + 1):
        if key == ApiKey.OFFSET_FETCH and version >= 8:
            group = message.OffsetFetchRequestGroup
            expected, request = ["a", "b"], message(groups=[group(group_id="a"), group(group_id="b")])
        else:
            expected, request = "a", message(group_id="a", topics=[])
        frame = memoryview(frames.request(key, version, 1, "c", request))[4:]
        assert prefixes.group_ids(key, version)(frame) == expected


PRODUCE = registry.message("ProduceRequest")


def produce(version: int, *names: str, partitions: int = 1) -> memoryview:
    data = [PRODUCE.PartitionProduceData(index=n, records=b"x" * 100) for n in range(partitions)]
    topic_identities = [{"topic_id": name.encode() * 16} if version >= 13 else {"name": name} for name in names]
    topics = [PRODUCE.TopicProduceData(partition_data=data, **each) for each in topic_identities]
    return memoryview(frames.request(0, version, 1, "c", PRODUCE(acks=1, timeout_ms=1, topic_data=topics)))[4:]


def test_the_last_value_does_not_wait_for_later_bytes() -> None:
    """A Produce of megabytes is recognised by its first bytes."""
    frame = produce(9, "orders")
    assert prefixes.topic_named(0, 9, "ord")(frame[: bytes(frame).index(b"orders") + 6], len(frame)) is True
    assert prefixes.topic_named(0, 9, "x")(frame[: bytes(frame).index(b"orders") + 6], len(frame)) is False


@pytest.mark.parametrize("version", [8, 9, 13])
def test_elements_are_counted_before_they_are_read(version: int) -> None:
    """Topics, and the partitions of all of them but the last."""
    frame = produce(version, "a", "b", partitions=10)
    names = prefixes.topic_ids(0, version) if version >= 13 else prefixes.topic_named(0, version, "no")
    assert names(frame, len(frame), 11) is Unread.TOO_MANY
    assert names(frame, len(frame), 12) is not Unread.TOO_MANY


FETCH = registry.message("FetchRequest")


def fetch(*, tags: Any = (), topic_tags: Any = (), partitions: int = 3) -> memoryview:
    parts = [FETCH.FetchPartition(partition=n) for n in range(partitions)]
    if parts:
        parts[-1].unknown_tags = tags
    topics = [FETCH.FetchTopic(topic_id=bytes([n]) * 16, partitions=parts, unknown_tags=topic_tags) for n in (1, 2)]
    return memoryview(frames.request(1, 13, 1, "c", FETCH(topics=topics)))[4:]


def test_tagged_fields_are_reported_in_the_header_and_around_the_values() -> None:
    """They matter in the header, in a topic, in a partition; elsewhere they are skipped."""
    untagged, any_ = prefixes.topic_ids(1, 13, untagged=True), prefixes.topic_ids(1, 13)
    ids, tags = [b"\1" * 16, b"\2" * 16], ((9_000, b"x"),)
    for frame in (fetch(), fetch(partitions=0)):
        assert untagged(frame, len(frame)) == any_(frame, len(frame)) == ids
    for frame in (fetch(tags=tags), fetch(topic_tags=tags)):
        assert untagged(frame, len(frame)) is Unread.TAGGED
        assert any_(frame, len(frame)) == ids
    frame = fetch()
    tagged = memoryview(bytes(frame[:11]) + b"\1\5\0" + bytes(frame[12:]))
    assert untagged(tagged, len(tagged)) is Unread.TAGGED
    assert any_(tagged, len(tagged)) == ids


def test_untagged_arrays_must_have_been_received_completely() -> None:
    frame = fetch()
    whole = [
        end for end in range(len(frame) + 1) if isinstance(prefixes.topic_ids(1, 13, untagged=True)(frame[:end]), list)
    ]
    assert whole[0] > bytes(frame).index(b"\2" * 16) + 16 + 3 * 33
    assert whole == list(range(whole[0], len(frame) + 1))


def test_a_place_is_the_position_of_the_field() -> None:
    message = registry.message("ShareFetchRequest")(group_id="g", member_id="m", max_bytes=77, topics=[])
    frame = memoryview(frames.request(78, 1, 1, "c", message))[4:]
    place = prefixes.of_request(78, 1, PlaceOf("MaxBytes"))(frame)
    several = prefixes.of_request(78, 1, FieldOf("GroupId"), FieldOf("MemberId"), PlaceOf("MaxBytes"))
    assert int.from_bytes(frame[place : place + 4], "big") == 77
    assert several(frame) == ("g", "m", place)
    assert prefixes.of_request(78, 1, PlaceOf("MaxBytes"))(frame[: place + 3]) is Unread.MORE_BYTES


def test_elements_of_a_response_are_read_one_by_one() -> None:
    """As a list of topics is read in a response about all of them."""
    message = registry.message("MetadataResponse")
    topics = [message.MetadataResponseTopic(name=name, partitions=[]) for name in ("a", "bc")]
    for version in range(registry.versions(3)[0], registry.versions(3)[1] + 1):
        body = registry.response(3, version).encode(message(brokers=[], topics=topics))
        _, count, at = prefixes.of_body("MetadataResponse", version, ArrayAt("Topics"))(body)
        read = prefixes.of_element("MetadataResponse", version, "Topics", "Name")
        first, second = read(body, p=at), read(body, p=read(body, p=at)[1])
        assert (count, first[0], second[0]) == (2, "a", "bc")


def test_errors_name_the_request() -> None:
    frame = produce(9, "orders")
    with pytest.raises(RemoteProtocolError, match="ProduceRequest v9: it ends too early"):
        prefixes.of_request(0, 9, FieldOf("Acks"))(frame[:14], 14)
    broken = memoryview(bytes(frame[:8]) + b"\xff\xfe" + bytes(frame[10:]))
    with pytest.raises(RemoteProtocolError, match="ProduceRequest v9: ClientId"):
        prefixes.of_request(0, 9, FieldOf("Acks"))(broken)


@pytest.mark.parametrize(
    ("key", "version", "wish"),
    [
        (0, 3, (FieldOf("Acks"), FieldOf("Acks"))),
        (0, 3, (FieldOf("Nothing"),)),
        (0, 3, (FieldOf("TopicData"),)),
        (0, 13, (AnyBegins("TopicData", "Name", "x"),)),
        (8, 8, (EachOf("Topics"),)),
        (8, 8, (EachOf("Topics", ("Nothing",)),)),
        (15, 4, (ArrayAt("Groups"), FieldOf("IncludeAuthorizedOperations"))),
    ],
)
def test_a_field_that_a_request_lacks_cannot_be_read(key: int, version: int, wish: Any) -> None:
    with pytest.raises(LocalProtocolError, match=f"{registry.API_KEYS[key]}Request v{version}"):
        prefixes.of_request(key, version, *wish)


def test_requests_without_groups_or_topics_have_no_reader_of_them() -> None:
    for reader in (prefixes.group_ids, prefixes.topic_ids):
        with pytest.raises(LocalProtocolError, match="has no"):
            reader(ApiKey.API_VERSIONS, 3)
    with pytest.raises(LocalProtocolError, match="has no"):
        prefixes.topic_named(ApiKey.API_VERSIONS, 3, "x")


def test_bytes_after_the_client_id_equal_those_of_the_codec() -> None:
    """In requests that name nothing."""
    for key, field in ((ApiKey.PRODUCE, "Acks"), (ApiKey.PRODUCE, "TopicData"), (ApiKey.FETCH, "Topics")):
        for version in range(registry.versions(key)[0], registry.versions(key)[1] + 1):
            message = registry.message(f"{registry.API_KEYS[key]}Request")
            fields = Source(registry.request_spec(key), version).plain_fields(registry.request_spec(key).root)
            numbers = {each.attribute: 0 for each in fields if each.type in FIXED_SIZES}
            frame = frames.request(key, version, 1, None, message(**numbers))[4:]
            place = prefixes.of_request(key, version, PlaceOf(field))(frame)
            assert prefixes.after_client_id(key, version, field) == frame[headers.CLIENT_ID_AT : place]
    for key, field in ((ApiKey.OFFSET_COMMIT, "MemberId"), (ApiKey.FETCH, "Nothing")):
        with pytest.raises(LocalProtocolError, match="does not follow only"):
            prefixes.after_client_id(key, 9, field)
