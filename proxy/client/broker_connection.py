"""One pipelined connection to one broker (client/README.md rules 5-7).

Theory of operation. `send` puts a frame into a queue and its request into the list of those that wait; one task writes,
one reads. Answers come in the order of the requests, so the first that waits is the one that is answered. Nobody who
asked stands in the middle of a write or a read, so nobody who is cancelled can leave the stream between two frames. A
connection that fails in any way ends as a whole, and everything that waits is told why.

A session with a lifetime is renewed on the connection (KIP-368): once it is due, requests are held back; when nothing
waits for an answer any more, the broker is asked what `proxy.wire.sasl.authentication` says; then they are sent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import trio

from proxy.brokers.own_connection import (
    ANSWER_TIMEOUT_S,
    STREAM_ENDED,
    BrokerVersions,
    OwnConnection,
    OwnSettings,
    reason_of,
    session_ends,
)
from proxy.consumer.requests import FailureKind, Outcome, RequestFailure
from proxy.wire import frame_sizes, frames, registry, sasl
from proxy.wire.errors import RemoteProtocolError, UpstreamLost
from proxy.wire.primitives import Buffer
from proxy.wire.values import MIB, Address

ANSWER_BYTES_MAX = 100 * MIB
"""Largest answer that is believed; fetch.max.bytes is 50 MiB, and a batch may be larger than what was asked for."""
WAITING_MAX = 100
"""Requests of one connection that are held back or wait for their answer; one more is refused."""
READ_BYTES = 64 << 10
"""Of one read between frames; a larger frame is read into memory of its own."""
READ_BYTES_MAX = MIB
"""Of one read within a large frame."""
CLOSED = "the broker closed the connection"
CORRELATION_IDS = 1 << 31
"""After so many they begin anew (AbstractRequest: int32, not negative)."""

Done = Callable[[Outcome], None]
"""Called once, from the connection's task or from `send`; must not raise."""

AUTHENTICATION_VERSIONS = {
    "SaslHandshake": (sasl.HANDSHAKE_VERSION, sasl.HANDSHAKE_VERSION),
    "SaslAuthenticate": (1, 2),
}
"""From 1 on SaslAuthenticate tells how long the session lives."""

API_KEYS = {name: key for key, name in registry.API_KEYS.items()}
"""Name of an API, "Fetch" -> key."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request that was sent, or is about to be."""

    api: str
    version: int
    correlation_id: int
    deadline: float
    timeout_s: float
    done: Done


class _Asked(NamedTuple):
    """A request as its caller gave it: the arguments of `send`."""

    api: str
    message: Any
    versions: tuple[int, int]
    timeout_s: float
    done: Done


class BrokerConnection:
    """An open connection; `run` does its work."""

    def __init__(self, opened: OwnConnection, settings: OwnSettings, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        """Take over what has been set up. RemoteProtocolError: the broker sent more than answers."""
        self.address: Address = opened.address
        self.versions: BrokerVersions = opened.versions
        self.trouble = ""
        """Why it has ended; empty while it is open."""
        self.has_answered = False
        """Whether it ever answered: a broker that wants an identity ends the connection at the first request."""
        self._stream = opened.hand_over()
        self._client_id = settings.client_id
        self._identity = settings.identity
        self._renew_at = opened.expires
        """When (trio.current_time) the session is to be renewed; infinite where it has no lifetime."""
        self._renewing: Generator[sasl.Question, Any, int] | None = None
        """What the broker is still to be asked for that."""
        self._held_back: list[_Asked] = []
        """Until the session is renewed."""
        self._answer_bytes_max = answer_bytes_max
        self._scope = trio.CancelScope()
        self._waiting: deque[_Waiting] = deque()
        self._unsent: deque[bytes] = deque()
        self._has_unsent = trio.Event()
        self._correlation_ids = count(1)
        self._received = bytearray()
        self._last_reason: str | None = None
        """Why it is to end once nothing waits any more."""

    # What others see

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._waiting) + len(self._held_back)

    @property
    def is_open(self) -> bool:
        """Whether a request may be answered."""
        return not self.trouble

    def send(self, api: str, message: Any, versions: tuple[int, int], timeout_s: float, done: Done) -> None:
        """Have a request sent in the highest version that both sides know.

        Args:
            api: "Fetch" of FetchRequest.
            message: the request.
            versions: the lowest and the highest that the caller understands.
            timeout_s: for the answer, from now on; when it is over the connection ends, since answers come in order.
            done: gets the response, or why there is none.
        """
        if (refusal := self._refusal()) is not None:
            done(refusal)
        elif trio.current_time() < self._renew_at:
            self._send(_Asked(api, message, versions, timeout_s, done))
        else:
            self._held_back.append(_Asked(api, message, versions, timeout_s, done))
            self._renew_session()

    def _send(self, asked: _Asked) -> None:
        api, message, versions, timeout_s, done = asked
        version = self._version(api, versions)
        if isinstance(version, str):
            done(RequestFailure(FailureKind.UNSUPPORTED_VERSION, version))
            return
        correlation_id = next(self._correlation_ids) % CORRELATION_IDS
        deadline = trio.current_time() + timeout_s
        self._unsent.append(frames.request(API_KEYS[api], version, correlation_id, self._client_id, message))
        self._waiting.append(_Waiting(api, version, correlation_id, deadline, timeout_s, done))
        self._has_unsent.set()
        self._set_deadline()

    def close(self, reason: str) -> None:
        """End it: what waits is told so at once; harmless twice."""
        self._close(reason, FailureKind.DISCONNECTED)

    def close_when_idle(self, reason: str) -> None:
        """End it as soon as nothing waits for an answer; nothing is to be sent any more."""
        self._last_reason = reason
        if not self.waiting:
            self.close(reason)

    async def run(self) -> None:
        """Write and read until the connection ends, whatever ends it; `trouble` says what did."""
        try:
            with self._scope:
                await self._write_and_read()
            self._expire()
        finally:
            self.close("cancelled")
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    # Inside

    def _close(self, reason: str, kind: FailureKind) -> None:
        if self.trouble:
            return
        self.trouble = reason
        unanswered: list[_Waiting | _Asked] = [*self._waiting, *self._held_back]
        self._waiting.clear()
        self._held_back.clear()
        self._unsent.clear()
        self._scope.cancel()
        for each in unanswered:
            each.done(RequestFailure(kind, f"{each.api}: {self.address}: {reason}"))

    def _renew_session(self) -> None:
        """Begin where nothing waits for an answer: meanwhile a broker takes nothing else."""
        if self._identity is None or self._renewing is not None or self._waiting:
            return
        who = self._identity
        self._renewing = sasl.authentication(who.mechanism, who.username, who.password)
        self._ask_on(None)

    def _ask_on(self, answer: Outcome | None) -> None:
        """The next question of a login; at its end what was held back is sent."""
        if self._renewing is None or isinstance(answer, RequestFailure):
            return  # the connection has ended
        try:
            key, question = self._renewing.send(answer)
        except StopIteration as ended:
            self._renewed(session_ends(ended.value))
        except sasl.LoginFailed as error:
            self._close(str(error), FailureKind.AUTHENTICATION)
        except OSError as error:  # the password cannot be read
            self._close(reason_of(error), FailureKind.DISCONNECTED)
        else:
            api = registry.API_KEYS[key]
            self._send(_Asked(api, question, AUTHENTICATION_VERSIONS[api], ANSWER_TIMEOUT_S, self._ask_on))

    def _renewed(self, renew_at: float) -> None:
        self._renewing, self._renew_at = None, renew_at
        held_back, self._held_back = self._held_back, []
        for each in held_back:
            self._send(each)

    def _refusal(self) -> RequestFailure | None:
        if self.trouble:
            return RequestFailure(FailureKind.DISCONNECTED, f"{self.address}: {self.trouble}")
        if self.waiting >= WAITING_MAX:
            text = f"{self.address}: {WAITING_MAX} requests wait already"
            return RequestFailure(FailureKind.DISCONNECTED, text)
        return None

    def _version(self, api: str, versions: tuple[int, int]) -> int | str:
        """The version to ask in; words where there is none."""
        ours, theirs = registry.versions(API_KEYS[api]), self.versions.ranges.get(API_KEYS[api])
        if theirs is None:
            return f"{self.address} does not serve {api}"
        low, high = max(versions[0], ours[0], theirs[0]), min(versions[1], ours[1], theirs[1])
        if low > high:
            return f"{self.address} has {api} {theirs[0]} to {theirs[1]}, and {versions[0]} to {versions[1]} is needed"
        return high

    def _set_deadline(self) -> None:
        """That of the first request that is late; several wait at most, and their timeouts differ."""
        self._scope.deadline = min((each.deadline for each in self._waiting), default=math.inf)

    def _expire(self) -> None:
        """The deadline ended it, if nothing else did."""
        late = min(self._waiting, key=lambda each: each.deadline, default=None)
        if self.trouble or late is None:
            return
        text = f"{late.api}: {self.address} did not answer within {late.timeout_s:g} s"
        self._waiting.remove(late)
        self.close(f"{late.api} was not answered within {late.timeout_s:g} s")
        late.done(RequestFailure(FailureKind.TIMED_OUT, text))

    async def _write_and_read(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._guarded, self._write)
            nursery.start_soon(self._guarded, self._read)

    @trio.lowlevel.enable_ki_protection
    async def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except (UpstreamLost, RemoteProtocolError) as error:
            self.close(str(error))
        except STREAM_ENDED as error:
            self.close(reason_of(error))

    async def _write(self) -> None:
        while True:
            await self._has_unsent.wait()
            data = b"".join(self._unsent)
            self._unsent.clear()
            self._has_unsent = trio.Event()
            await self._stream.send_all(data)

    async def _read(self) -> None:
        while True:
            self._answered(await self._frame())

    def _answered(self, frame: Buffer) -> None:
        if not self._waiting:
            raise RemoteProtocolError("an answer to nothing came")
        first = self._waiting[0]  # taken off when its answer was read: else it is told by `close` that none comes
        answered_id, answer = frames.decode_response(API_KEYS[first.api], first.version, frame)
        if answered_id != first.correlation_id:
            raise RemoteProtocolError(f"request {answered_id} was answered, {first.correlation_id} was asked")
        self._waiting.popleft()
        self.has_answered = True
        self._set_deadline()
        first.done(answer)
        if self._held_back:
            self._renew_session()
        if self._last_reason is not None:
            self.close_when_idle(self._last_reason)

    async def _frame(self) -> Buffer:
        head = await self._exactly(4)
        size = int.from_bytes(head, "big", signed=True)
        if not frame_sizes.ANSWER_MIN <= size <= self._answer_bytes_max:
            raise frame_sizes.wrong_size(size, self._answer_bytes_max, frame_sizes.ANSWER_MIN)
        return await (self._exactly(size) if size <= READ_BYTES else self._large(size))

    async def _large(self, size: int) -> memoryview:
        """Straight to where it stays: records are made of the bytes as they lie there."""
        frame = memoryview(bytearray(size))
        have = min(size, len(self._received))
        frame[:have] = self._received[:have]
        del self._received[:have]
        while have < size:
            have += await self._read_into(frame[have : have + READ_BYTES_MAX])
        return frame.toreadonly()

    async def _read_into(self, room: memoryview) -> int:
        if isinstance(self._stream, trio.SocketStream):
            count = await self._stream.socket.recv_into(room)
        else:
            chunk = await self._stream.receive_some(len(room))
            count = len(chunk)
            room[:count] = chunk
        if not count:
            raise UpstreamLost(CLOSED)
        return count

    async def _exactly(self, size: int) -> bytes:
        while (missing := size - len(self._received)) > 0:
            chunk = await self._stream.receive_some(max(READ_BYTES, missing))
            if not chunk:
                raise UpstreamLost(CLOSED)
            self._received += chunk
        taken = bytes(memoryview(self._received)[:size])
        del self._received[:size]
        return taken
