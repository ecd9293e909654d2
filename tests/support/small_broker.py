"""A broker of a few lines: the part that the proxy's own requests need, on memory streams or on a socket."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import scramp
import trio
import trio.testing
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address

API_VERSIONS = 18
RANGES = {
    0: (0, 11), 1: (4, 17), 3: (0, 12), 16: (0, 5), 17: (0, 1), 18: (0, 4), 36: (0, 2), 60: (0, 1), 78: (1, 2)
}  # fmt: skip


class Broker:
    """A broker on memory streams: the part that the proxy's own requests need."""

    def __init__(self, node_id: int = 1, mechanism: str = "", ranges: dict[int, tuple[int, int]] | None = None) -> None:
        self.node_id = node_id
        self.metadata_brokers = {node_id: Address(f"b{node_id}", 9092)}
        """The brokers that its Metadata names."""
        self.share_level = 1
        self.groups: dict[str, str] = {}
        """Group id -> type."""
        self.cluster_bits = -1
        self.mechanism = mechanism
        self.ranges = RANGES if ranges is None else ranges
        self.users = {"proxy": "s3cret"}
        self.lifetime_ms = 0
        self.connections = 0
        self.handshakes = 0
        self.garbage: bytes | None = None
        self.silent = False
        self.slow_s = 0.0
        """How long each response takes."""
        self._open: list[trio.CancelScope] = []

    def cut(self) -> None:
        """End every connection."""
        for scope in self._open:
            scope.cancel()

    async def listen(self, nursery: trio.Nursery) -> Address:
        """Serve on a free port of this machine, and name that as its own address."""
        opened = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, self.serve, opened)
        address = Address(*opened[0].socket.getsockname()[:2])
        self.metadata_brokers[self.node_id] = address
        return address

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        self._scram: Any = None
        reader, self.authenticated = frames.FrameReader(), not self.mechanism
        with trio.CancelScope() as scope:
            self._open.append(scope)
            with suppress(trio.BrokenResourceError):  # the requester is gone, with or without a farewell
                async for data in stream:
                    for frame in reader.receive_data(data):
                        if not await self._response(stream, frame):
                            await stream.aclose()
                            return
        await stream.aclose()

    async def _response(self, stream: trio.abc.Stream, frame: bytes) -> bool:
        header, request = frames.decode_request(frame)
        if self.silent:
            return True
        if self.garbage is not None:
            await stream.send_all(self.garbage)
            return True
        if header.key not in (API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE) and not self.authenticated:
            return False
        response = getattr(self, f"_k{header.key}")(request)
        await trio.sleep(self.slow_s)
        await stream.send_all(frames.response(header.key, header.version, header.correlation_id, response))
        return True

    def _k18(self, request: Any) -> Any:
        response = registry.message("ApiVersionsResponse")
        keys = [response.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.ranges.items()]
        level = response.FinalizedFeatureKey(
            name="share.version", max_version_level=self.share_level, min_version_level=1
        )
        return response(api_keys=keys, finalized_features=[level], finalized_features_epoch=1)

    def _k3(self, request: Any) -> Any:
        response = registry.message("MetadataResponse")
        brokers = [
            response.MetadataResponseBroker(node_id=node_id, host=address.host, port=address.port)
            for node_id, address in self.metadata_brokers.items()
        ]
        topics = [response.MetadataResponseTopic(name=topic.name, error_code=3) for topic in request.topics]
        return response(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)

    def _k60(self, request: Any) -> Any:
        return registry.message("DescribeClusterResponse")(
            cluster_id="c", brokers=[], cluster_authorized_operations=self.cluster_bits
        )

    def _k16(self, request: Any) -> Any:
        response = registry.message("ListGroupsResponse")
        matching_groups = [group for group, kind in self.groups.items() if kind in request.types_filter]
        return response(
            groups=[response.ListedGroup(group_id=group, protocol_type="share") for group in matching_groups]
        )

    def _k17(self, request: Any) -> Any:
        response = registry.message("SaslHandshakeResponse")
        if not self.mechanism:
            return response(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        self.authenticated, self._scram = False, None  # nothing but SaslAuthenticate may follow (KIP-368)
        self.handshakes += 1
        wrong = request.mechanism != self.mechanism
        return response(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM if wrong else 0, mechanisms=[self.mechanism])

    def _k36(self, request: Any) -> Any:
        response = registry.message("SaslAuthenticateResponse")
        try:
            token = self._token(bytes(request.auth_bytes))
        except (scramp.ScramException, ValueError) as error:
            return response(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error), auth_bytes=b"")
        return response(error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=self.lifetime_ms)

    def _token(self, token: bytes) -> bytes:
        if self.mechanism == "PLAIN":
            _, user, password = token.decode().split("\0")
            if self.users.get(user) != password:
                raise ValueError("Authentication failed: Invalid username or password")
            self.authenticated = True
            return b""
        if self._scram is None:
            mechanism = scramp.ScramMechanism(self.mechanism)
            self._scram = mechanism.make_server(lambda user: mechanism.make_auth_info(self.users[user]))
            self._scram.set_client_first(token.decode())
            return bytes(self._scram.get_server_first().encode())
        self._scram.set_client_final(token.decode())
        self.authenticated = True
        return bytes(self._scram.get_server_final().encode())


class Net:
    """Connects to brokers by address; a broker that is None refuses."""

    def __init__(self, nursery: trio.Nursery, brokers: dict[Address, Broker | None]) -> None:
        self._nursery = nursery
        self.brokers = brokers
        self.dialled: list[Address] = []
        self.black_holes: set[Address] = set()
        """Addresses that never respond."""
        self.delays: dict[Address, float] = {}
        """Seconds until a connection is there."""
        self._open: dict[trio.abc.Stream, Address] = {}

    @property
    def open(self) -> list[Address]:
        """Return the addresses of connections that the client has not closed."""
        return list(self._open.values())

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        address = Address(host, port)
        self.dialled.append(address)
        if address in self.black_holes:
            await trio.sleep_forever()
        await trio.sleep(self.delays.get(address, 0))
        broker = self.brokers.get(address)
        if broker is None:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(broker.serve, theirs)
        self._open[ours] = address
        ours.send_stream.close_hook = lambda: self._open.pop(ours, None)
        return ours
