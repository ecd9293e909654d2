"""A forwarded ShareFetch may not ask for more than can be collected."""

import pytest
from kafka_share_proxy.forwarding.apis.k78_forwarded_share_fetch import limit_max_bytes
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import MIB

REQUEST = registry.message("ShareFetchRequest")
VERSIONS = range(registry.versions(78)[0], registry.versions(78)[1] + 1)


def request(version: int, **fields) -> bytearray:
    batch = REQUEST.AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=[1])
    partition = REQUEST.FetchPartition(partition_index=0, acknowledgement_batches=[batch])
    topic = REQUEST.FetchTopic(topic_id=bytes(range(16)), partitions=[partition])
    base = {"group_id": "g", "member_id": "m" * 22, "share_session_epoch": 3, "max_wait_ms": 500, "min_bytes": 1}
    message = REQUEST(**(base | {"max_records": 500, "batch_size": 100, "topics": [topic]} | fields))
    return bytearray(frames.request(78, version, 9, "client", message)[4:])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("requested", "sent"), [(2**31 - 1, 48 * MIB), (50 * MIB, 48 * MIB), (48 * MIB, 48 * MIB), (1, 1), (0, 0), (-1, -1)]
)
def test_max_bytes_is_lowered_in_place_and_nothing_else(version, requested, sent):
    frame, expected = request(version, max_bytes=requested), request(version, max_bytes=sent)
    assert limit_max_bytes(version, 64 * MIB)(memoryview(frame)) is None
    assert frame == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "fields", [{"group_id": None}, {"member_id": None}, {"group_id": "ä" * 200}, {"group_id": "", "member_id": ""}]
)
def test_names_of_any_length_stand_before_it(version, fields):
    frame, expected = request(version, max_bytes=2**31 - 1, **fields), request(version, max_bytes=750, **fields)
    limit_max_bytes(version, 1000)(memoryview(frame))
    assert frame == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_ends_too_early_is_refused_or_left_alone(version):
    whole = request(version, max_bytes=100, topics=[])
    for cut in range(8, len(whole)):
        frame = bytearray(whole[:cut])
        try:
            limit_max_bytes(version, 64 * MIB)(memoryview(frame))
        except RemoteProtocolError:
            continue
        assert frame == whole[:cut]


def test_an_endless_length_ends():
    frame = request(1, max_bytes=1)[:17] + bytearray(b"\xff" * 200)
    with pytest.raises(RemoteProtocolError):
        limit_max_bytes(1, 64 * MIB)(memoryview(frame))
