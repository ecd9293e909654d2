"""Codecs: every message there and back, what is preserved, whose fault an error is."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.wire.definitions import registry, specs
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError

from tests.wire.samples import Samples, every_codec

ROUNDS = 3
CODECS = list(every_codec())


@pytest.mark.parametrize("tags", [False, True], ids=["plain", "unknown tags"])
def test_every_message_survives_a_round_trip(tags: bool) -> None:
    """All messages, versions and directions, also with unknown tagged fields; a second time byte for byte."""
    for name, version in CODECS:
        codec = registry.codec(name, version)
        samples = Samples(f"{name}-{version}-{tags}", tags=tags)
        for _ in range(ROUNDS):
            message = samples.message(codec.spec, version)
            data = codec.encode(message)
            assert codec.decode(data) == message, codec
            assert codec.encode(codec.decode(memoryview(data))) == data, codec


def test_all_definitions_have_codecs() -> None:
    """203 definitions, some of which have no version left."""
    assert len(CODECS) > 600
    assert len({name for name, _ in CODECS}) == 195


GOLDEN_TAGS = [
    # ApiVersionsResponse v3: known tag 1 (FinalizedFeaturesEpoch = 7) between unknown 0x50 and 0x1000.
    (18, 3, "0000 01 00000000 03 01 08 0000000000000007 50 01 aa 8020 00", ((0x50, b"\xaa"), (0x1000, b""))),
    # The same without the known tag.
    (18, 3, "0000 01 00000000 01 50 02 aabb", ((0x50, b"\xaa\xbb"),)),
]


@pytest.mark.parametrize(("key", "version", "text", "tags"), GOLDEN_TAGS)
def test_unknown_tags_are_kept_in_place(key: int, version: int, text: str, tags: tuple[tuple[int, bytes], ...]) -> None:
    """Known and unknown tagged fields are unchanged, in the order of their tags."""
    data = bytes.fromhex(text.replace(" ", ""))
    codec = registry.response(key, version)
    message = codec.decode(data)
    assert message.unknown_tags == tags
    assert codec.encode(message) == data


def test_nested_unknown_tags_are_kept() -> None:
    """MetadataResponse v12: tags of a broker, of a topic, of a partition and of the message are distinguished."""
    response = registry.message("MetadataResponse")
    message = response(
        brokers=[response.MetadataResponseBroker(host="a", unknown_tags=((5, b"broker"),))],
        topics=[
            response.MetadataResponseTopic(
                partitions=[response.MetadataResponsePartition(unknown_tags=((6, b"partition"),))],
                unknown_tags=((7, b"topic"),),
            )
        ],
        unknown_tags=((8, b"message"),),
    )
    codec = registry.response(3, 12)
    again = codec.decode(codec.encode(message))
    assert again == message
    assert again.topics[0].partitions[0].unknown_tags == ((6, b"partition"),)


def test_tags_out_of_order_are_read_and_written_in_order() -> None:
    """Kafka's reader takes any order, its writer ascending only."""
    codec = registry.response(18, 3)
    data = bytes.fromhex("0000 01 00000000 02 50 01 aa 01 08 0000000000000007".replace(" ", ""))
    assert codec.encode(codec.decode(data)).hex() == "000001000000000201080000000000000007" + "5001aa"


def test_a_tag_of_a_later_version_is_unknown() -> None:
    """FetchRequest v12 has no ReplicaState (tag 1 from v15 on): kept as it is, not interpreted."""
    codec = registry.request(1, 12)
    plain = codec.encode(registry.message("FetchRequest")())
    assert plain[-1] == 0
    data = plain[:-1] + bytes.fromhex("01" + "01" + "02" + "beef")
    assert codec.decode(data).unknown_tags == ((1, b"\xbe\xef"),)
    assert codec.encode(codec.decode(data)) == data


def test_a_tagged_field_must_fill_its_size() -> None:
    """Otherwise what follows would be read from the wrong place."""
    for size, content in (("07", "00" * 8), ("09", "00" * 9)):
        data = bytes.fromhex("0000010000000001" + "01" + size + content)
        with pytest.raises(RemoteProtocolError, match="FinalizedFeaturesEpoch"):
            registry.response(18, 3).decode(data)


def test_bytes_after_a_message_are_refused() -> None:
    """A longer body means that the version was mistaken."""
    codec = registry.request(18, 0)
    assert codec.decode(b"") == registry.message("ApiVersionsRequest")()
    with pytest.raises(RemoteProtocolError, match="1 bytes too many"):
        codec.decode(b"\0")
    assert codec.decode_prefix(b"ab\0", 2)[1] == 2


def test_decoding_starts_at_the_offset() -> None:
    """A body is read out of its frame without cutting it out."""
    codec = registry.request(3, 1)
    data = codec.encode(registry.message("MetadataRequest")(topics=None))
    assert codec.decode(b"header" + data, 6) == codec.decode(data)
    assert codec.decode(memoryview(b"header" + data), 6).topics is None


def test_records_are_neither_copied_in_nor_out() -> None:
    """A fetch of many megabytes is returned as a view of its buffer."""
    response = registry.message("FetchResponse")
    codec = registry.response(1, 12)
    records = memoryview(b"r" * 1000)
    partition = response.PartitionData(records=records)
    message = response(responses=[response.FetchableTopicResponse(topic="t", partitions=[partition])])
    parts: list[Any] = []
    codec.encode_into(message, parts)
    assert any(part is records for part in parts)
    buffer = bytearray(b"".join(parts))
    decoded = codec.decode(buffer)
    view = decoded.responses[0].partitions[0].records
    assert view == records
    buffer[buffer.index(b"rrr")] = ord("R")
    assert bytes(view[:2]) == b"Rr"


FAULTS = [
    ("MetadataResponse", 12, {"throttle_time_ms": "soon"}),
    ("MetadataResponse", 12, {"controller_id": 2**31}),
    ("MetadataResponse", 12, {"topics": None}),
    ("MetadataRequest", 0, {"topics": None}),
    ("MetadataResponse", 12, {"cluster_id": 7}),
    ("HeartbeatRequest", 4, {"group_id": None}),
    ("HeartbeatRequest", 4, {"group_id": "x" * 32768}),
    ("HeartbeatRequest", 3, {"group_id": "x" * 32768}),
    ("HeartbeatRequest", 0, {"unknown_tags": ((1, b""),)}),
    ("ConsumerGroupHeartbeatResponse", 0, {"assignment": 5}),
]


@pytest.mark.parametrize(("name", "version", "values"), FAULTS)
def test_an_invalid_value_raises_local_protocol_error(name: str, version: int, values: dict[str, Any]) -> None:
    """A wrong type, a number too large, null where it may not be: never a frame that says something else."""
    message = registry.message(name)(**values)
    with pytest.raises(LocalProtocolError, match=f"{name} v{version}"):
        registry.codec(name, version).encode(message)


def test_ids_of_a_wrong_size_are_refused() -> None:
    """struct would pad or cut them silently."""
    request = registry.message("MetadataRequest")
    for topic_id in (b"", bytes(15), bytes(17)):
        message = request(topics=[request.MetadataRequestTopic(topic_id=topic_id)])
        with pytest.raises(LocalProtocolError, match="uuid"):
            registry.request(3, 12).encode(message)


def test_another_message_is_refused() -> None:
    """Two messages may have the same fields and still be different things."""
    with pytest.raises(LocalProtocolError, match="HeartbeatResponse"):
        registry.request(12, 4).encode(registry.message("HeartbeatResponse")())


def test_a_set_field_that_the_version_lacks_raises_local_protocol_error() -> None:
    """A value that is set, and not ignorable, needs a version that has it; at its default it is no matter."""
    request = registry.message("ShareFetchRequest")
    assert registry.request(78, 1).encode(request(is_renew_ack=False))
    with pytest.raises(LocalProtocolError, match="IsRenewAck"):
        registry.request(78, 1).encode(request(is_renew_ack=True))
    assert registry.request(78, 2).encode(request(is_renew_ack=True))


def test_ignorable_fields_are_dropped() -> None:
    """HeartbeatResponse v0 has no ThrottleTimeMs, which the definition calls ignorable."""
    codec = registry.response(12, 0)
    message = registry.message("HeartbeatResponse")(throttle_time_ms=5)
    assert specs.load("HeartbeatResponse").root.fields[0].ignorable
    assert codec.decode(codec.encode(message)).throttle_time_ms == 0


def test_nullable_structures_begin_with_one_signed_byte() -> None:
    """One signed byte in front: -1 for null, 1 for a structure (KIP-893); anything else is refused."""
    response = registry.message("ConsumerGroupHeartbeatResponse")
    codec = registry.response(68, 0)
    absent = codec.encode(response())
    present = codec.encode(response(assignment=response.Assignment()))
    assert absent[-2:] == b"\xff\0"
    assert present[-4:] == b"\x01\x01\0\0"
    assert codec.decode(absent).assignment is None
    assert codec.decode(present).assignment == response.Assignment()
    with pytest.raises(RemoteProtocolError):
        codec.decode(absent[:-2] + b"\x02\0")


def test_a_codec_has_the_name_and_version_of_its_message() -> None:
    assert str(registry.response(3, 12)) == "MetadataResponse v12"
