"""A request that the loop repeats: its task is woken by anything but the expected response."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import pytest
import trio
from kafka_share_proxy.brokers import repeated_request
from kafka_share_proxy.brokers.cluster_connection import BrokerVersions, ClusterClientSettings, ClusterConnection
from kafka_share_proxy.brokers.repeated_request import RepeatedRequest, Repetition, content_of
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.frames import FrameReader
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.conditions import until

VERSION = 4
PAUSE_S, LATE_S = 0.02, 0.3
NO_RESPONSE_S = 0.05


class SocketWithoutRoom:
    """Replacement of `os`: the socket accepts only some bytes."""

    def __init__(self, accepted: int) -> None:
        self._accepted = accepted
        self.read = os.read

    def write(self, fd: int, data: bytes) -> int:
        if not self._accepted:
            raise BlockingIOError
        return os.write(fd, data[: self._accepted])


class Exchange:
    """Our end of a connection, a run of heartbeats on it, and the broker's end."""

    def __init__(self, reactor: Reactor, ours: trio.SocketStream, broker: trio.SocketStream) -> None:
        self.reactor, self.broker = reactor, broker
        self._reader = FrameReader()
        self.opened = ClusterConnection(Address("broker", 1), ours, ClusterClientSettings(reactor=reactor))
        self.opened.versions = BrokerVersions(ranges={ApiKey.HEARTBEAT: (VERSION, VERSION)}, response=None)
        self.fd = ours.socket.fileno()
        self.pauses_s: list[float | None] = []
        """Returned after each expected response. PAUSE_S if empty."""
        self.sent: list[float] = []
        """Times of requests with an expected response."""
        self.repeated = self.new_run()

    def new_run(self) -> RepeatedRequest:
        request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        expected = content_of(ApiKey.HEARTBEAT, VERSION, messages.HeartbeatResponse())
        repetition = Repetition(
            lambda number: self.opened.request(ApiKey.HEARTBEAT, VERSION, number, request),
            expected,
            self._responded,
            LATE_S,
        )
        assert self.opened.repeating == (self.reactor, self.fd)
        return RepeatedRequest(self.opened, self.reactor, self.fd, repetition)

    def _responded(self, sent: float) -> float | None:
        self.sent.append(sent)
        return self.pauses_s.pop(0) if self.pauses_s else PAUSE_S

    async def request(self) -> int:
        """Receive one heartbeat at the broker. Return its correlation id."""
        while data := await self.broker.receive_some():
            for frame in self._reader.receive_data(data):
                header, message = frames.decode_request(frame)
                assert (header.key, message.member_id) == (ApiKey.HEARTBEAT, "m")
                return header.correlation_id
        pytest.fail("the connection was closed")

    def response(self, correlation_id: int, code: ErrorCode = ErrorCode.NONE) -> bytes:
        message = messages.HeartbeatResponse(error_code=code)
        return frames.response(ApiKey.HEARTBEAT, VERSION, correlation_id, message)

    async def confirm(self, times: int = 1) -> None:
        for _ in range(times):
            await self.broker.send_all(self.response(await self.request()))

    async def finish(self) -> ErrorCode:
        """Run until the task is woken with a request in flight. Return the error code of its response."""
        in_flight = await self.repeated.run(PAUSE_S)
        assert in_flight is not None
        response = await self.opened.finish(ApiKey.HEARTBEAT, VERSION, in_flight)
        return ErrorCode(response.error_code)

    async def heartbeat(self) -> ErrorCode:
        """Send one from the task."""
        request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        return ErrorCode((await self.opened.send_request(ApiKey.HEARTBEAT, request)).error_code)


def run(test: Callable[[Exchange, trio.Nursery], Awaitable[None]]) -> None:
    """Run the test as a guest of a reactor."""
    reactor = Reactor(new_pump)

    async def main() -> None:
        with trio.fail_after(10):
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            async with listener, await trio.open_tcp_stream(*listener.socket.getsockname()) as ours:
                exchange = Exchange(reactor, ours, await listener.accept())
                async with exchange.broker, trio.open_nursery() as nursery:
                    await test(exchange, nursery)
                assert exchange.fd not in reactor._ready

    try:
        reactor.run(main)
    finally:
        reactor.shut()


def test_the_task_is_woken_by_another_response() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        began, codes = trio.current_time(), []

        async def wait() -> None:
            codes.append(await exchange.finish())

        nursery.start_soon(wait)
        await exchange.confirm(20)
        last = await exchange.request()
        assert last == 21, "each has another correlation id"
        assert not codes
        await exchange.broker.send_all(exchange.response(last, ErrorCode.REBALANCE_IN_PROGRESS))
        await until(lambda: codes)
        assert codes == [ErrorCode.REBALANCE_IN_PROGRESS]
        assert len(exchange.sent) == 20
        assert began + PAUSE_S < exchange.sent[0]
        assert all(b - a > PAUSE_S / 2 for a, b in zip(exchange.sent, exchange.sent[1:], strict=False))

    run(test)


def test_the_task_is_woken_by_a_late_response_and_receives_it() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        nursery.start_soon(exchange.confirm)
        began = trio.current_time()
        in_flight = await exchange.repeated.run(PAUSE_S)
        assert in_flight is not None
        assert LATE_S <= trio.current_time() - in_flight.sent < 3 * LATE_S
        assert trio.current_time() - began > 2 * PAUSE_S + LATE_S
        nursery.start_soon(exchange.confirm)
        response = await exchange.opened.finish(ApiKey.HEARTBEAT, VERSION, in_flight)
        assert response.error_code == ErrorCode.NONE

    run(test)


def test_a_response_in_two_parts_is_received_by_the_task() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        async def respond() -> None:
            response = exchange.response(await exchange.request(), ErrorCode.UNKNOWN_MEMBER_ID)
            await exchange.broker.send_all(response[:6])
            await trio.sleep(NO_RESPONSE_S)
            await exchange.broker.send_all(response[6:])

        nursery.start_soon(respond)
        assert await exchange.finish() == ErrorCode.UNKNOWN_MEMBER_ID
        nursery.start_soon(exchange.confirm)
        assert await exchange.heartbeat() == ErrorCode.NONE, "the connection is usable"

    run(test)


def test_the_end_of_the_connection_wakes_the_task_during_a_pause() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        exchange.pauses_s = [100.0]

        async def close() -> None:
            await exchange.confirm()
            await exchange.broker.aclose()

        nursery.start_soon(close)
        assert await exchange.repeated.run(0) is None
        with pytest.raises(UpstreamLost):
            await exchange.heartbeat()

    run(test)


def test_the_end_of_the_connection_wakes_the_task_while_a_response_is_due() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        async def close() -> None:
            await exchange.confirm()
            await exchange.request()
            await exchange.broker.aclose()

        nursery.start_soon(close)
        with pytest.raises(UpstreamLost, match="closed the connection"):
            await exchange.finish()

    run(test)


def test_stop_ends_a_pause_immediately() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        exchange.pauses_s = [100.0]

        async def stop() -> None:
            await exchange.confirm()
            await until(lambda: exchange.sent)
            exchange.repeated.stop()

        nursery.start_soon(stop)
        assert await exchange.repeated.run(0) is None

    run(test)


def test_stop_lets_a_response_in_flight_arrive() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        async def stop() -> None:
            correlation_id = await exchange.request()
            exchange.repeated.stop()
            await trio.sleep(NO_RESPONSE_S)
            await exchange.broker.send_all(exchange.response(correlation_id))

        nursery.start_soon(stop)
        assert await exchange.repeated.run(0) is None
        assert len(exchange.sent) == 1

    run(test)


def test_nothing_is_sent_after_a_stop_before_the_run() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        exchange.repeated.stop()
        assert await exchange.repeated.run(0) is None
        with trio.move_on_after(NO_RESPONSE_S):
            await exchange.request()
            pytest.fail("a request was sent")

    run(test)


def test_its_owner_can_end_it_after_a_response() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        exchange.pauses_s = [0.0, PAUSE_S, None]
        nursery.start_soon(exchange.confirm, 3)
        assert await exchange.repeated.run(0) is None
        assert len(exchange.sent) == 3
        nursery.start_soon(exchange.confirm)
        assert await exchange.heartbeat() == ErrorCode.NONE

    run(test)


def test_an_error_of_its_owner_is_raised_in_the_task() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        def responded(_sent: float) -> float:
            raise ValueError("a fault")

        exchange._responded = responded  # type: ignore[method-assign]
        exchange.repeated = exchange.new_run()
        nursery.start_soon(exchange.confirm)
        with pytest.raises(ValueError, match="a fault"):
            await exchange.repeated.run(0)

    run(test)


def test_a_request_that_is_sent_in_part_is_completed_by_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        for accepted in (0, 5):
            monkeypatch.setattr(repeated_request, "os", SocketWithoutRoom(accepted))
            exchange.repeated = exchange.new_run()
            nursery.start_soon(exchange.confirm)
            assert await exchange.finish() == ErrorCode.NONE

    run(test)


def test_a_request_that_cannot_be_sent_wakes_the_task() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        exchange.opened._stream.socket.shutdown(trio.socket.SHUT_WR)  # type: ignore[attr-defined]
        assert await exchange.repeated.run(0) is None
        with pytest.raises(UpstreamLost, match="Broken pipe"):
            await exchange.heartbeat()

    run(test)


def test_a_cancelled_task_ends_it() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        nursery.start_soon(exchange.confirm, 2)
        with trio.move_on_after(NO_RESPONSE_S) as scope:
            await exchange.repeated.run(0)
        assert scope.cancelled_caught
        assert exchange.fd not in exchange.reactor._ready

    run(test)


def test_connections_without_the_loop_are_not_repeated_on() -> None:
    async def test(exchange: Exchange, nursery: trio.Nursery) -> None:
        without = ClusterConnection(Address("b", 1), exchange.opened._stream, ClusterClientSettings())
        assert without.repeating is None
        ours, _ = trio.testing.memory_stream_pair()
        of_memory = ClusterConnection(Address("b", 1), ours, ClusterClientSettings(reactor=exchange.reactor))
        assert of_memory.repeating is None, "as with TLS"
        exchange.opened.received(b"\0")
        assert exchange.opened.repeating is None

    run(test)
