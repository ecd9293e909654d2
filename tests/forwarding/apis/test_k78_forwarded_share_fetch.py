"""A forwarded ShareFetch: MaxBytes of the request, and the response, which is forwarded while it arrives."""

from contextlib import suppress

import pytest
from kafka_share_proxy.forwarding.apis.k78_forwarded_share_fetch import limit_max_bytes
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import MIB

from tests.forwarding.plane_world import FETCH, response, world
from tests.forwarding.plane_world import request as plane_request

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


RESPONSE = registry.message("ShareFetchResponse")
HIDDEN, SHOWN = "broker-2.internal.example", "proxy"


def share_fetch_world(**options):
    book = AddressBook(20000, SHOWN, lambda _node, _address: True)
    return world(route_table.build(book, EffectiveVersions(Offer()), Limits(), {}), **options)


def share_fetch_response(correlation_id: int, records: int, nodes: int = 0) -> bytes:
    acquired = [RESPONSE.AcquiredRecords(first_offset=0, last_offset=9)]
    partitions = [RESPONSE.PartitionData(partition_index=n, records=bytes(records)) for n in range(3)]
    partitions[1].acquired_records = acquired
    endpoints = [RESPONSE.NodeEndpoint(node_id=node, host=HIDDEN, port=9092) for node in range(1, nodes + 1)]
    topic = RESPONSE.ShareFetchableTopicResponse(partitions=partitions)
    return bytes(frames.response(78, 2, correlation_id, RESPONSE(responses=[topic], node_endpoints=endpoints)))


def connected(plane_world):
    """Return a client and its broker after a ShareFetch request with the correlation id 9."""
    client, broker = plane_world.pair()
    frame = request(2, max_bytes=1000)
    whole = len(frame).to_bytes(4, "big") + bytes(frame)
    client.send(whole)
    broker.expect(whole)
    return client, broker


def sent_in_pieces(plane_world, broker, data: bytes, piece: int) -> None:
    for start in range(0, len(data), piece):
        broker.send(data[start : start + piece])
        plane_world.iterate()


@pytest.mark.parametrize("records", [0, 100, 400_000, 2_000_000])
@pytest.mark.parametrize("piece", [61, 70_001, 10_000_000])
def test_a_response_is_forwarded_while_it_arrives_and_requests_after_it_get_theirs(records, piece):
    with share_fetch_world(limits=Limits(collected_bytes=100_000)) as w:
        client, broker = connected(w)
        whole = share_fetch_response(9, min(records, 20 * piece))
        following = plane_request(FETCH, 11, 10)
        client.send(following)
        broker.expect(following)
        sent_in_pieces(w, broker, whole[:-1], piece)
        assert client.receive(len(whole) - 5) == whole[:-5], "all but the end of its last elements"
        broker.send(whole[-1:] + response(10))
        client.expect(whole[-5:] + response(10))
        (connection,) = w.plane._connections.values()
        assert not connection.responses.is_busy
        assert not connection.pending


@pytest.mark.parametrize("piece", [61, 70_001, 10_000_000])
def test_no_address_of_a_broker_passes_in_a_response_that_arrives_in_pieces(piece):
    with share_fetch_world() as w:
        client, broker = connected(w)
        whole = share_fetch_response(9, min(600_000, 20 * piece), nodes=2)
        sent_in_pieces(w, broker, whole[:-1], piece)
        broker.send(whole[-1:])
        received = client.receive(len(whole))
        assert HIDDEN.encode() not in received
        _, message = frames.decode_response(78, 2, memoryview(received)[4:])
        assert [(each.node_id, each.host, each.port) for each in message.node_endpoints] == [
            (1, SHOWN, 20001),
            (2, SHOWN, 20002),
        ]
        assert received[:-70] == whole[:-70]


@pytest.mark.parametrize("come", [20, 100_000, 700_000])
def test_a_broker_that_disconnects_within_a_response_ends_its_client(come):
    with share_fetch_world() as w:
        client, broker = connected(w)
        broker.send(share_fetch_response(9, 300_000)[:come])
        for _ in range(3):
            w.iterate()
        broker.close()
        w.iterate_until(lambda: client.take() is not None and client.ended)
        assert len(client.data) <= come


def test_a_response_that_cannot_be_read_ends_the_connection_with_a_reason():
    with share_fetch_world() as w:
        client, broker = connected(w)
        broker.send((100_000).to_bytes(4, "big") + (9).to_bytes(4, "big") + b"\xff" * 200)
        client.expect_end()
        assert w.events() == ["upstream-protocol-error"]


def test_a_client_that_reads_nothing_within_a_response_gets_all_of_it_later():
    with share_fetch_world() as w:
        client, broker = connected(w)
        whole, sent = share_fetch_response(9, 6_000_000, nodes=1), 0
        (connection,) = w.plane._connections.values()
        while not connection.client.has_unsent:
            with suppress(BlockingIOError):
                sent += broker.sock.send(whole[sent : sent + (64 << 10)])
            w.iterate()
        assert sent < len(whole)
        broker.send(whole[sent:])
        received = client.receive(len(whole))
        assert received[:17_000_000] == whole[:17_000_000]
        assert HIDDEN.encode() not in received
