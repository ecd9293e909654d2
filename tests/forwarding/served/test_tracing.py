"""Records of requests that are served here, without OpenTelemetry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route, Routes
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.tracing import UPSTREAM_MAX, ServedRequest, Tracing
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import UpstreamLost


class Play:
    """One route with a handler that waits for `upstream`, and a clock that counts its readings."""

    def __init__(self, response: bytes | None = b"response") -> None:
        self.recorded: list[ServedRequest] = []
        self.upstream: Promise[memoryview] = Promise()
        self.response = response
        self.clock = 0
        self.tracing = Tracing(self.recorded.append, self._now)
        self.routes = Routes()
        self.routes.add(
            Route(kind=Kind.INSPECT, key=76, version=1, handler=self.handler, synchronous_handler=lambda *_: True)  # type: ignore[arg-type]
        )
        self.routes.add(Route(kind=Kind.FORWARD, key=0, version=9))
        self.ended: list[Any] = []

    def _now(self) -> int:
        self.clock += 1
        return self.clock

    async def handler(self, call: Call[Any]) -> bytes | None:
        self.tracing.sent(call.connection, ApiKey.METADATA, 12, self.upstream)
        await self.upstream
        return self.response

    def start(self, connection_id: int = 7) -> Task[Any]:
        (route,) = (each for each in self.tracing.traced(self.routes).values() if each.key == 76)
        connection: Any = SimpleNamespace(id=connection_id)
        call = Call(key=76, version=1, correlation_id=1, client_id="c", message=b"", connection=connection)
        assert route.handler is not None
        task: Task[Any] = Task(route.handler(call), self.ended.append)
        task.start()
        return task


def test_served_request_is_recorded_with_its_request_upstream() -> None:
    play = Play()
    task = play.start()
    assert play.recorded == []
    play.upstream.set(memoryview(b""))
    (served,) = play.recorded
    (sent,) = served.upstream
    assert (task.value, served.response, served.error) == (b"response", b"response", None)
    assert (served.begun_ns, sent.begun_ns, sent.ended_ns, served.ended_ns) == (1, 2, 3, 4)
    assert (sent.key, sent.version, sent.error) == (ApiKey.METADATA, 12, None)


def test_forwarded_request_is_not_recorded() -> None:
    play = Play(response=None)
    task = play.start()
    play.upstream.set(memoryview(b""))
    assert (task.finished, play.recorded) == (True, [])


def test_failure_of_the_handler_is_recorded_and_raised() -> None:
    play = Play()
    task = play.start()
    play.upstream.fail(UpstreamLost("gone"))
    (served,) = play.recorded
    assert isinstance(task.error, UpstreamLost)
    assert served.error is task.error
    assert served.upstream[0].error is task.error


def test_request_of_a_client_that_left_is_recorded_as_cancelled() -> None:
    play = Play()
    play.start().cancel()
    (served,) = play.recorded
    assert isinstance(served.error, GeneratorExit)
    assert served.upstream[0].ended_ns == 0


def test_requests_of_two_connections_do_not_mix_and_others_are_ignored() -> None:
    play = Play()
    play.start(1)
    play.start(2)
    idle: Any = SimpleNamespace(id=3)
    play.tracing.sent(idle, ApiKey.HEARTBEAT, 4, Promise())
    play.upstream.set(memoryview(b""))
    assert [(served.call.connection.id, len(served.upstream)) for served in play.recorded] == [(1, 1), (2, 1)]
    play.tracing.sent(play.recorded[0].call.connection, ApiKey.HEARTBEAT, 4, Promise())
    assert [len(served.upstream) for served in play.recorded] == [1, 1], "it was sent after the response"


def test_upstream_requests_of_one_request_are_bounded_and_counted() -> None:
    play = Play()

    async def many(call: Call[Any]) -> bytes:
        for _ in range(UPSTREAM_MAX + 5):
            play.tracing.sent(call.connection, ApiKey.METADATA, 12, Promise())
        return b"x"

    play.handler = many  # type: ignore[method-assign]
    play.routes.add(Route(kind=Kind.LOCAL, key=76, version=1, handler=many))
    play.start()
    (served,) = play.recorded
    assert (len(served.upstream), served.upstream_left_out) == (UPSTREAM_MAX, 5)


def test_routes_without_a_handler_stay_as_they_are_and_fast_paths_are_left_out() -> None:
    play = Play()
    traced = play.tracing.traced(play.routes)
    forwarded = b"\x00\x00\x00\x09"
    assert traced[forwarded] is play.routes[forwarded]
    (served,) = (each for each in traced.values() if each.key == 76)
    assert served.synchronous_handler is None
    assert traced.fallback is play.routes.fallback
