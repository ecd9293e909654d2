"""The proxy's own questions: versions, authentication, Metadata, and servers that are not what they should be."""

import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import scramp
import trio
import trustme

from proxy.errors import ErrorCode, RemoteProtocolError, UpstreamLost
from proxy.runtime import client
from proxy.runtime.client import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, Identity, OwnClient, OwnSettings
from proxy.values import Address, Limits
from proxy.wire import frames, registry

ALL = {3: (0, 12), 17: (0, 1), 18: (0, 4), 36: (0, 2), 78: (1, 2)}
ANSWERS = 18, METADATA


class Broker:
    """A broker on memory streams: as much of one as the proxy's own questions need."""

    def __init__(self, node_id: int = 1, mechanism: str = "", ranges: dict[int, tuple[int, int]] | None = None) -> None:
        self.node_id = node_id
        self.mechanism = mechanism
        self.ranges = ALL if ranges is None else ranges
        self.users = {"proxy": "s3cret"}
        self.lifetime_ms = 0
        self.connections = 0
        self.garbage: bytes | None = None
        self.silent = False

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        reader, self.authenticated, self._scram = frames.FrameReader(), not self.mechanism, None
        with trio.CancelScope() as scope:
            self.cut = scope.cancel
            async for data in stream:
                for frame in reader.receive_data(data):
                    if not await self._answer(stream, frame):
                        await stream.aclose()
                        return
        await stream.aclose()

    async def _answer(self, stream: trio.abc.Stream, frame: bytes) -> bool:
        header, request = frames.decode_request(frame)
        if self.silent:
            return True
        if self.garbage is not None:
            await stream.send_all(self.garbage)
            return True
        if header.key not in (18, SASL_HANDSHAKE, SASL_AUTHENTICATE) and not self.authenticated:
            return False
        answer = getattr(self, f"_k{header.key}")(request)
        await stream.send_all(frames.response(header.key, header.version, header.correlation_id, answer))
        return True

    def _k18(self, request: Any) -> Any:
        answer = registry.message("ApiVersionsResponse")
        keys = [answer.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.ranges.items()]
        level = answer.FinalizedFeatureKey(name="share.version", max_version_level=1, min_version_level=1)
        return answer(api_keys=keys, finalized_features=[level], finalized_features_epoch=1)

    def _k3(self, request: Any) -> Any:
        answer = registry.message("MetadataResponse")
        broker = answer.MetadataResponseBroker(node_id=self.node_id, host=f"b{self.node_id}", port=9092)
        topics = [
            answer.MetadataResponseTopic(name=topic.name, error_code=3, partitions=[]) for topic in request.topics
        ]
        return answer(brokers=[broker], cluster_id="c", controller_id=1, topics=topics)

    def _k17(self, request: Any) -> Any:
        answer = registry.message("SaslHandshakeResponse")
        if not self.mechanism:
            return answer(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        wrong = request.mechanism != self.mechanism
        return answer(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM if wrong else 0, mechanisms=[self.mechanism])

    def _k36(self, request: Any) -> Any:
        answer = registry.message("SaslAuthenticateResponse")
        try:
            token = self._token(bytes(request.auth_bytes))
        except (scramp.ScramException, ValueError) as error:
            return answer(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error), auth_bytes=b"")
        return answer(error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=self.lifetime_ms)

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
            return self._scram.get_server_first().encode()
        self._scram.set_client_final(token.decode())
        self.authenticated = True
        return self._scram.get_server_final().encode()


class Net:
    """Connects to brokers by address; a broker that is None refuses."""

    def __init__(self, nursery: trio.Nursery, brokers: dict[Address, Broker | None]) -> None:
        self._nursery = nursery
        self._brokers = brokers
        self.dialled: list[Address] = []

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        address = Address(host, port)
        self.dialled.append(address)
        broker = self._brokers.get(address)
        if broker is None:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(broker.serve, theirs)
        return ours


A, B = Address("a", 1), Address("b", 2)
IDENTITY = Identity(mechanism="PLAIN", username="proxy", password=lambda: "s3cret")

Test = Callable[[OwnClient, Net], Awaitable[None]]


async def with_client(brokers: dict[Address, Broker | None], test: Test, identity: Identity | None = None) -> None:
    """Run a test with a client of these brokers, none of which may outlive it."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, brokers)
        own = OwnClient(list(brokers), OwnSettings(connect=net, identity=identity))
        with trio.fail_after(60):
            await test(own, net)
        await own.aclose()
        nursery.cancel_scope.cancel()


async def test_metadata_names_brokers_and_what_they_can_do(autojump_clock: trio.testing.MockClock) -> None:
    """One connection serves many questions."""

    async def test(own: OwnClient, net: Net) -> None:
        for _ in range(3):
            answer, versions = await own.metadata(["t"])
        assert [(broker.node_id, broker.host) for broker in answer.brokers] == [(1, "b1")]
        assert [topic.name for topic in answer.topics] == ["t"]
        assert (versions.ranges[78], versions.finalized) == ((1, 2), {"share.version": 1})
        assert net.dialled == [A]

    await with_client({A: Broker()}, test)


async def test_the_next_server_is_asked_when_one_is_down(autojump_clock: trio.testing.MockClock) -> None:
    """All bootstrap servers are tried, not only the first."""

    async def test(own: OwnClient, net: Net) -> None:
        await own.metadata()
        assert net.dialled == [A, B]
        await own.metadata()
        assert net.dialled == [A, B]

    await with_client({A: None, B: Broker()}, test)


async def test_a_lost_connection_is_replaced_at_once(autojump_clock: trio.testing.MockClock) -> None:
    """A broker that restarted between two questions is dialled again."""
    broker = Broker()

    async def test(own: OwnClient, net: Net) -> None:
        await own.metadata()
        broker.cut()
        await trio.testing.wait_all_tasks_blocked()
        await own.metadata()
        assert net.dialled == [A, A]

    await with_client({A: broker}, test)


async def test_no_server_at_all_tells_every_reason(autojump_clock: trio.testing.MockClock) -> None:
    """The error names each server with its own reason."""

    async def test(own: OwnClient, net: Net) -> None:
        with pytest.raises(UpstreamLost, match=r"a:1: Connection refused; b:2 did not answer within 15 s"):
            await own.metadata()

    silent = Broker()
    silent.silent = True
    await with_client({A: None, B: silent}, test)


async def test_brokers_named_in_an_answer_are_tried_too(autojump_clock: trio.testing.MockClock) -> None:
    """When every bootstrap server is gone, a broker that is known helps out."""
    first, named = Broker(node_id=1), Broker(node_id=1)
    brokers: dict[Address, Broker | None] = {A: first}

    async def test(own: OwnClient, net: Net) -> None:
        await own.metadata()
        brokers[A], brokers[Address("b1", 9092)] = None, named
        first.cut()
        await own.metadata()
        assert net.dialled == [A, A, Address("b1", 9092)]

    await with_client(brokers, test)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_identity_is_shown(mechanism: str, autojump_clock: trio.testing.MockClock) -> None:
    """Every mechanism offered as a setting works against its server side."""

    async def test(own: OwnClient, net: Net) -> None:
        answer, _ = await own.metadata()
        assert len(answer.brokers) == 1

    identity = Identity(mechanism=mechanism, username="proxy", password=lambda: "s3cret")
    await with_client({A: Broker(mechanism=mechanism)}, test, identity)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_told_as_such(mechanism: str, autojump_clock: trio.testing.MockClock) -> None:
    """AuthenticationFailed, without the password in the text."""

    async def test(own: OwnClient, net: Net) -> None:
        with pytest.raises(client.AuthenticationFailed) as caught:
            await own.metadata()
        assert "wr0ng" not in str(caught.value)

    identity = Identity(mechanism=mechanism, username="proxy", password=lambda: "wr0ng")
    await with_client({A: Broker(mechanism=mechanism)}, test, identity)


async def test_a_mechanism_that_is_not_offered_names_those_that_are(autojump_clock: trio.testing.MockClock) -> None:
    """What to change is in the text."""

    async def test(own: OwnClient, net: Net) -> None:
        with pytest.raises(client.AuthenticationFailed, match="does not take PLAIN; it offers SCRAM-SHA-512"):
            await own.metadata()

    await with_client({A: Broker(mechanism="SCRAM-SHA-512")}, test, IDENTITY)


async def test_without_identity_a_broker_that_wants_one_is_told_apart(autojump_clock: trio.testing.MockClock) -> None:
    """It closes without a word at the first question; versions it tells anybody."""

    async def test(own: OwnClient, net: Net) -> None:
        with pytest.raises(client.AuthenticationNeeded):
            await own.metadata()
        address, versions = await own.any_versions()
        assert (address, versions.ranges[78]) == (A, (1, 2))

    await with_client({A: Broker(mechanism="PLAIN")}, test)


async def test_an_identity_is_no_harm_where_none_is_wanted(autojump_clock: trio.testing.MockClock) -> None:
    """A listener without SASL answers ILLEGAL_SASL_STATE; everybody is ANONYMOUS there."""

    async def test(own: OwnClient, net: Net) -> None:
        await own.metadata()

    await with_client({A: Broker()}, test, IDENTITY)


async def test_a_session_with_a_lifetime_is_replaced_in_time(autojump_clock: trio.testing.MockClock) -> None:
    """KIP-368: a broker closes a session that outlives its credentials."""
    broker = Broker(mechanism="PLAIN")
    broker.lifetime_ms = 10_000

    async def test(own: OwnClient, net: Net) -> None:
        await own.metadata()
        await trio.sleep(7.9)
        await own.metadata()
        assert broker.connections == 1
        await trio.sleep(0.2)
        await own.metadata()
        assert broker.connections == 2

    await with_client({A: broker}, test, IDENTITY)


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x16", "looks like TLS"),
        (b"\xff\xff\xff\xff", "frame of -1 bytes"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x63\x00\x00", "truncated|short|end|byte"),
    ],
)
async def test_what_is_no_kafka_is_a_clear_error(
    garbage: bytes, words: str, autojump_clock: trio.testing.MockClock
) -> None:
    """A TLS alert, a negative size, a truncated answer: an error with words, never a crash."""
    broker = Broker()
    broker.garbage = garbage

    async def test(own: OwnClient, net: Net) -> None:
        with pytest.raises(UpstreamLost, match=words):
            await own.metadata()

    await with_client({A: broker}, test)


async def test_a_version_nobody_shares_is_a_clear_error(autojump_clock: trio.testing.MockClock) -> None:
    """A broker from the far future or past."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, {A: Broker(ranges={**ALL, 3: (90, 91)})})
        async with client.connection(A, OwnSettings(connect=net)) as opened:
            with pytest.raises(RemoteProtocolError, match="no version of Metadata"):
                await opened.ask(METADATA, registry.message("MetadataRequest")(topics=[]))
        nursery.cancel_scope.cancel()


async def test_mechanisms_are_listed_without_an_identity(autojump_clock: trio.testing.MockClock) -> None:
    """What `check` shows; an open listener has none."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, {A: Broker(mechanism="SCRAM-SHA-256"), B: Broker()})
        async with client.connection(A, OwnSettings(connect=net)) as opened:
            assert await client.mechanisms(opened) == ("SCRAM-SHA-256",)
        async with client.connection(B, OwnSettings(connect=net)) as opened:
            assert await client.mechanisms(opened) == ()
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
        settings = OwnSettings(connect=partial(dial, nursery), tls=client_side)
        async with client.connection(B, settings) as opened:
            assert opened.versions.ranges == ALL
        with pytest.raises(UpstreamLost, match="certificate is not accepted"):
            await client.open_connection(A, settings)
        nursery.cancel_scope.cancel()


async def test_an_answer_above_the_limit_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    """A size is checked before anything is kept."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, {A: Broker()})
        with pytest.raises(RemoteProtocolError, match="frame of"):
            await client.open_connection(A, OwnSettings(connect=net, limits=Limits(collected_bytes=16)))
        nursery.cancel_scope.cancel()
