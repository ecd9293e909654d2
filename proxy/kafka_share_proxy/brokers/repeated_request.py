"""A request to one broker that the loop itself repeats, while every response is the expected one.

A Trio task that sends such requests is woken for each of them, and again for its response. These wake-ups were most of
the work of an idle proxy (loop/README.md rule 2). Here the task is woken only by something else: another response, a
late one, the end of the connection, or `stop`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import trio

from kafka_share_proxy.brokers.cluster_connection import READ_BYTES, ClusterConnection, InFlight
from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.reactor import Reactor, ReactorTimer
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions.messages import Message


class Repetition(NamedTuple):
    """Request to repeat, and its expected response."""

    request: Callable[[int], bytes]
    """Called when it is sent, with the correlation id. Returns the frame with its size."""
    expected: bytes
    """Expected response after its correlation id."""
    responded: Callable[[float], float | None]
    """Called after each expected response, with trio.current_time() at which its request was sent.

    Returns the seconds until the next request, or None to end.
    """
    late_s: float
    """Seconds after which a response is late."""


class RepeatedRequest:
    """One run of repetitions. Owner of the socket in the sense of `faults`.

    No other request may be sent on the connection meanwhile.
    """

    def __init__(self, opened: ClusterConnection, reactor: Reactor, fd: int, repetition: Repetition) -> None:
        """`fd`: descriptor of the socket of `opened`, which has received nothing but responses."""
        self._reactor = reactor
        self._opened = opened
        self._fd = fd
        self._repetition = repetition
        self._in_flight: InFlight | None = None
        self._response = b""
        """Expected frame of the response in flight."""
        self._is_stopped = self._is_running = False
        self._ended = trio.Event()
        self._alarm: ReactorTimer | None = None
        self._fault: Exception | None = None

    async def run(self, pause_s: float) -> InFlight | None:
        """Repeat, first after this pause, until the caller has to continue by itself.

        Returns the request whose response the caller has to receive (`ClusterConnection.finish`), or None.
        """
        if self._is_stopped:
            await trio.lowlevel.checkpoint()
            return None
        self._set_alarm(self._reactor.call_at(self._reactor.now() + pause_s, self._send))
        self._reactor.register(self._fd, READ, self._on_event)
        self._is_running = True
        try:
            await self._ended.wait()
        finally:
            self._end()
        if self._fault is not None:
            raise self._fault
        return self._in_flight

    def stop(self) -> None:
        """End after the response in flight, or now if there is none."""
        self._is_stopped = True
        if self._in_flight is None:
            self._end()

    def failed(self, error: Exception) -> None:
        self._fault = error
        self._end()

    def _send(self) -> None:
        correlation_id = next(self._opened.correlation_ids)
        frame = self._repetition.request(correlation_id)
        content = correlation_id.to_bytes(4, "big") + self._repetition.expected
        self._response = len(content).to_bytes(4, "big") + content
        try:
            sent_bytes = os.write(self._fd, frame)
        except BlockingIOError:
            sent_bytes = 0
        except OSError:
            self._end()  # the caller's next request fails in the same way
            return
        self._in_flight = InFlight(correlation_id, frame[sent_bytes:], trio.current_time())
        if sent_bytes < len(frame):
            self._end()
        else:
            self._set_alarm(self._reactor.call_at(self._reactor.now() + self._repetition.late_s, self._end))

    def _on_event(self, _mask: int) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # the caller's next read or request fails
        if self._in_flight is None or data != self._response:
            self._opened.received(data)
            self._end()
            return
        sent, self._in_flight = self._in_flight.sent, None
        self._set_alarm(None)
        pause_s = self._repetition.responded(sent)
        if pause_s is None or self._is_stopped:
            self._end()
        elif pause_s > 0:
            self._set_alarm(self._reactor.call_at(self._reactor.now() + pause_s, self._send))
        else:
            self._send()

    def _set_alarm(self, alarm: ReactorTimer | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = alarm

    def _end(self) -> None:
        if self._is_running:
            self._is_running = False
            self._set_alarm(None)
            self._reactor.unregister(self._fd)
            self._ended.set()


def content_of(key: int, version: int, response: Message) -> bytes:
    """Return the bytes of a response after its correlation id."""
    return frames.response(key, version, 0, response)[8:]
