"""One connection of the proxy's own: versions, mechanisms, TLS, limits."""

import ssl
from functools import partial

import pytest
import trio
import trustme
from kafka_share_proxy.brokers import cluster_connection
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import RANGES, Broker, Net

A, B = Address("a", 1), Address("b", 2)


async def test_a_version_without_overlap_is_a_clear_error(autojump_clock: trio.testing.MockClock) -> None:
    """A broker from the far future or past."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, {A: Broker(ranges={**RANGES, 3: (90, 91)})})
        async with cluster_connection.connection(A, ClusterClientSettings(connect=net)) as opened:
            with pytest.raises(RemoteProtocolError, match="no version of Metadata"):
                await opened.send_request(ApiKey.METADATA, registry.message("MetadataRequest")(topics=[]))
        nursery.cancel_scope.cancel()


async def test_mechanisms_are_listed_without_an_identity(autojump_clock: trio.testing.MockClock) -> None:
    """`check` shows them; an open listener has none."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, {A: Broker(mechanism="SCRAM-SHA-256"), B: Broker()})
        async with cluster_connection.connection(A, ClusterClientSettings(connect=net)) as opened:
            assert await cluster_connection.mechanisms(opened) == ("SCRAM-SHA-256",)
        async with cluster_connection.connection(B, ClusterClientSettings(connect=net)) as opened:
            assert await cluster_connection.mechanisms(opened) == ()
        nursery.cancel_scope.cancel()


async def test_tls_is_verified_by_the_name_that_is_dialled(autojump_clock: trio.testing.MockClock) -> None:
    """A certificate for another name is refused, and the text says so."""
    authority = trustme.CA()
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("b").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)

    async def dial(nursery: trio.Nursery, host: str, port: int) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        nursery.start_soon(serve, trio.SSLStream(theirs, server_side, server_side=True, https_compatible=True))
        return ours

    async def serve(stream: trio.abc.Stream) -> None:
        try:
            await Broker().serve(stream)
        except trio.BrokenResourceError:
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        settings = ClusterClientSettings(connect=partial(dial, nursery), tls=TlsContext(client_side))
        async with cluster_connection.connection(B, settings) as opened:
            assert opened.versions.ranges == RANGES
        with pytest.raises(UpstreamLost, match="certificate is not accepted"):
            await cluster_connection.open_connection(A, settings)
        nursery.cancel_scope.cancel()


async def no_tls_stream(data: bytes) -> trio.abc.Stream:
    """A stream whose peer reads the ClientHello, replies with `data` and closes, as a listener without TLS does."""
    ours, theirs = trio.testing.memory_stream_pair()
    if data:
        await theirs.send_all(data)
    await theirs.send_eof()
    return ours


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x23"]
)
async def test_a_listener_without_tls_is_named_as_such(reply: bytes, autojump_clock: trio.testing.MockClock) -> None:
    """The error names the setting to check instead of OpenSSL's reason."""
    tls = TlsContext(ssl.create_default_context())
    settings = ClusterClientSettings(connect=lambda host, port: no_tls_stream(reply), tls=tls)
    with pytest.raises(UpstreamLost, match=r"^a:1: the TLS handshake failed.* without TLS \(see upstream.tls\)$"):
        await cluster_connection.open_connection(A, settings)


async def test_a_response_above_the_limit_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    """A size is checked before anything is kept."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, {A: Broker()})
        with pytest.raises(RemoteProtocolError, match="frame of"):
            await cluster_connection.open_connection(A, ClusterClientSettings(connect=net, response_bytes=16))
        nursery.cancel_scope.cancel()


async def test_an_http_port_is_recognised_immediately() -> None:
    """It waits for the end of a request's head, which no Kafka request seems to have: ours has one."""

    async def serve(stream: trio.SocketStream) -> None:
        arrived = b""
        async for data in stream:
            arrived += data
            if b"\r\n\r\n" in arrived:
                await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (opened,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [opened])
        address = Address("127.0.0.1", opened.socket.getsockname()[1])
        with trio.fail_after(5), pytest.raises(RemoteProtocolError, match="no Kafka frame but HTTP"):
            await cluster_connection.open_connection(address, ClusterClientSettings())
        nursery.cancel_scope.cancel()


async def test_a_request_that_the_socket_does_not_accept_whole_is_sent_in_parts() -> None:
    """The request has more bytes than both sockets of a connection buffer."""
    metadata = registry.message("MetadataRequest")
    topics = [
        metadata.MetadataRequestTopic(topic_id=bytes(16), name=f"{number}" + "t" * 30_000) for number in range(400)
    ]
    async with trio.open_nursery() as nursery:
        broker = Broker()
        address = await broker.listen(nursery)
        with trio.fail_after(20):
            async with cluster_connection.connection(address, ClusterClientSettings()) as opened:
                response = await opened.send_request(ApiKey.METADATA, metadata(topics=topics))
        assert [each.node_id for each in response.brokers] == [broker.node_id]
        nursery.cancel_scope.cancel()


class OtherVersions(Broker):
    """Server that accepts ApiVersions in these versions only, and refuses others according to KIP-511."""

    def __init__(self, first: int, last: int, *, tells: bool = True) -> None:
        super().__init__(ranges={**RANGES, 18: (first, last)})
        self.tells = tells
        self.requested: list[int] = []

    async def _response(self, stream: trio.abc.Stream, frame: bytes) -> bool:
        key, version, correlation_id = headers.peek(frame)
        if key != 18:
            return await super()._response(stream, frame)
        self.requested.append(version)
        response = self._k18(None)
        if not self.ranges[18][0] <= version <= self.ranges[18][1]:
            only = [each for each in response.api_keys if each.api_key == 18] if self.tells else []
            response = registry.message("ApiVersionsResponse")(error_code=35, api_keys=only)
            version = 0
        await stream.send_all(frames.response(18, version, correlation_id, response))
        return True


@pytest.mark.parametrize(
    ("first", "last", "tells", "requested"), [(0, 2, True, [3, 2]), (0, 0, False, [3, 0]), (4, 9, True, [3, 5])]
)
async def test_a_broker_of_another_release_is_queried_again_in_a_version_it_has(
    first: int, last: int, tells: bool, requested: list[int], autojump_clock: trio.testing.MockClock
) -> None:
    broker = OtherVersions(first, last, tells=tells)
    async with trio.open_nursery() as nursery:
        async with cluster_connection.connection(A, ClusterClientSettings(connect=Net(nursery, {A: broker}))) as opened:
            assert opened.versions.ranges[3] == RANGES[3]
        assert broker.requested == requested
        nursery.cancel_scope.cancel()


async def test_no_common_version_of_api_versions_is_a_clear_error(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        settings = ClusterClientSettings(connect=Net(nursery, {A: OtherVersions(8, 9)}))
        with pytest.raises(RemoteProtocolError, match="ApiVersions 8 to 9, none is known here"):
            await cluster_connection.open_connection(A, settings)
        nursery.cancel_scope.cancel()


async def test_an_equal_response_is_decoded_once_and_another_one_again(autojump_clock: trio.testing.MockClock) -> None:
    """Only the correlation id differs between looks at a topic. Each of them must still be the response's own."""
    async with trio.open_nursery() as nursery:
        broker = Broker()
        request = registry.message("MetadataRequest")(topics=[])
        async with cluster_connection.connection(A, ClusterClientSettings(connect=Net(nursery, {A: broker}))) as opened:
            first = await opened.send_request(ApiKey.METADATA, request)
            assert await opened.send_request(ApiKey.METADATA, request) is first
            older = await opened.send_request(ApiKey.METADATA, request, version=1)
            assert older is not first
            broker.metadata_brokers[2] = Address("b2", 9093)
            changed = await opened.send_request(ApiKey.METADATA, request)
            assert [each.node_id for each in changed.brokers or ()] == [1, 2]
            broker.garbage = frames.response(ApiKey.METADATA, 12, 99, changed)
            with pytest.raises(RemoteProtocolError, match="responded to request 99 instead of 6"):
                await opened.send_request(ApiKey.METADATA, request)
        nursery.cancel_scope.cancel()


async def test_a_large_response_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """A cluster with 100,000 partitions must not cost their memory for each connection."""
    monkeypatch.setattr(cluster_connection, "REPEATED_BYTES", 8)
    async with trio.open_nursery() as nursery:
        request, net = registry.message("MetadataRequest")(topics=[]), Net(nursery, {A: Broker()})
        async with cluster_connection.connection(A, ClusterClientSettings(connect=net)) as opened:
            first = await opened.send_request(ApiKey.METADATA, request)
            assert await opened.send_request(ApiKey.METADATA, request) is not first
        nursery.cancel_scope.cancel()
