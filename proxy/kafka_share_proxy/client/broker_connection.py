"""One pipelined connection to one broker (client/README.md rules 5-7).

`send` appends a frame to a queue and its request to the list of waiting requests. A connection that fails in any way
ends as a whole, and all waiting requests get the reason. Renewal of a session: client/README.md rule 12.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import trio

from kafka_share_proxy.brokers.cluster_connection import (
    RESPONSE_TIMEOUT_S,
    STREAM_ENDED,
    BrokerVersions,
    ClusterClientSettings,
    ClusterConnection,
    Identity,
    reason_of,
    session_ends,
)
from kafka_share_proxy.client.frame_memory import FrameMemory
from kafka_share_proxy.consumer.requests import FailureKind, Outcome, RequestFailure
from kafka_share_proxy.wire import sasl
from kafka_share_proxy.wire.codec import frame_sizes, frames
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import MIB, Address

RESPONSE_BYTES_MAX = 100 * MIB
"""fetch.max.bytes is 50 MiB, and a batch may be larger than requested."""
WAITING_MAX = 100
"""Maximum number of requests that are held back or in flight. One more is refused."""
READ_BYTES = 64 << 10
"""Bytes of one read between frames."""
READ_BYTES_MAX = MIB
"""Bytes of one read into a large frame."""
CLOSED = "the broker closed the connection"
CORRELATION_IDS = 1 << 31
"""Correlation ids before they repeat (AbstractRequest: int32, not negative)."""

Done = Callable[[Outcome], None]
"""Called once, from the connection's task or from `send`; must not raise."""

AUTHENTICATE_VERSIONS = (1, 2)
"""Versions whose response contains the lifetime of the session."""

API_KEYS = {name: key for key, name in registry.API_KEYS.items()}


class _InFlight(NamedTuple):
    """A request that was sent, or is queued for sending, and has no response."""

    api: str
    version: int
    correlation_id: int
    deadline: float
    timeout_s: float
    done: Done


class _Call(NamedTuple):
    """Arguments of `send`, which wait while the SASL session is renewed."""

    api: str
    message: Any
    versions: tuple[int, int]
    timeout_s: float
    done: Done


class BrokerConnection:
    """Connection to one broker. `run` writes its requests and reads its responses."""

    def __init__(
        self,
        opened: ClusterConnection,
        settings: ClusterClientSettings,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        memory: FrameMemory | None = None,
    ) -> None:
        """Raises RemoteProtocolError if the broker sent more than responses."""
        self.address: Address = opened.address
        self.versions: BrokerVersions = opened.versions
        self.trouble = ""
        """Empty while the connection is open."""
        self.has_responded = False
        """True after the first response. A broker that requires authentication closes the connection before it."""
        self._stream = opened.hand_over()
        self._client_id = settings.client_id
        self._identity = settings.identity
        self._renew_at = opened.expires
        """Infinite if the session has no lifetime."""
        self._renewing: Generator[sasl.Query, Any, int] | None = None
        self._is_fetching = False
        self._nursery: trio.Nursery | None = None
        self._held_back: list[_Call] = []
        self._response_bytes_max = response_bytes_max
        self._memory = memory or FrameMemory()
        self._scope = trio.CancelScope()
        self._in_flight: deque[_InFlight] = deque()
        self._unsent: deque[bytes] = deque()
        self._has_unsent = trio.Event()
        self._correlation_ids = opened.correlation_ids
        self._received = bytearray()
        self._close_reason_when_idle: str | None = None
        """Reason for closing as soon as no request waits."""

    # Public methods

    @property
    def waiting(self) -> int:
        """Number of requests without a response."""
        return len(self._in_flight) + len(self._held_back)

    @property
    def is_open(self) -> bool:
        return not self.trouble

    def send(self, api: str, message: Any, versions: tuple[int, int], timeout_s: float, done: Done) -> None:
        """Send a request in the highest version that both sides support.

        After `timeout_s` the connection ends, since responses arrive in order. `done` is called with the response or
        the failure.
        """
        if (refusal := self._refusal()) is not None:
            done(refusal)
        elif trio.current_time() < self._renew_at:
            self._send(_Call(api, message, versions, timeout_s, done))
        else:
            self._held_back.append(_Call(api, message, versions, timeout_s, done))
            self._renew_session()

    def _send(self, request: _Call) -> None:
        api, message, versions, timeout_s, done = request
        version = self._version(api, versions)
        if isinstance(version, str):
            done(RequestFailure(FailureKind.UNSUPPORTED_VERSION, version))
            return
        correlation_id = next(self._correlation_ids) % CORRELATION_IDS
        deadline = trio.current_time() + timeout_s
        self._unsent.append(frames.request(API_KEYS[api], version, correlation_id, self._client_id, message))
        self._in_flight.append(_InFlight(api, version, correlation_id, deadline, timeout_s, done))
        self._has_unsent.set()
        self._set_deadline()

    def close(self, reason: str) -> None:
        """Fail all waiting requests immediately. May be called twice."""
        self._close(reason, FailureKind.DISCONNECTED)

    def close_when_idle(self, reason: str) -> None:
        """Close the connection after the last response. The caller must send no further requests."""
        self._close_reason_when_idle = reason
        if not self.waiting:
            self.close(reason)

    async def run(self) -> None:
        """Write and read until the connection ends. `trouble` then contains the reason."""
        try:
            with self._scope:
                await self._write_and_read()
            self._expire()
        finally:
            self.close("cancelled")
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    # Internal

    def _close(self, reason: str, kind: FailureKind) -> None:
        if self.trouble:
            return
        self.trouble = reason
        unfinished: list[_InFlight | _Call] = [*self._in_flight, *self._held_back]
        self._in_flight.clear()
        self._held_back.clear()
        self._unsent.clear()
        self._scope.cancel()
        for each in unfinished:
            each.done(RequestFailure(kind, f"{each.api}: {self.address}: {reason}"))

    def _renew_session(self) -> None:
        """Begin the login once no request waits for a response."""
        if self._identity is None or self._renewing is not None or self._is_fetching or self._in_flight:
            return
        if self._identity.fetch is None or self._nursery is None:
            self._begin_renewal(self._identity, self._identity.password)
        else:
            self._is_fetching = True
            self._nursery.start_soon(self._close_on_error, self._fetch_and_renew, name="token for a new session")

    async def _fetch_and_renew(self) -> None:
        if self._identity is not None:
            secret = await self._identity.secret()
            self._is_fetching = False
            if not self.trouble:
                self._begin_renewal(self._identity, secret)

    def _begin_renewal(self, identity: Identity, secret: Callable[[], str]) -> None:
        self._renewing = sasl.authentication(identity.mechanism, identity.username, secret)
        self._continue_login(None)

    def _continue_login(self, response: Outcome | None) -> None:
        """Send the next request of a login, or, if the login is complete, the requests that were held back."""
        if self._renewing is None or isinstance(response, RequestFailure):
            return  # the connection has ended
        try:
            key, version, query = self._renewing.send(response)
        except StopIteration as ended:
            self._end_renewal(session_ends(ended.value))
        except sasl.LoginFailed as error:
            self._close(str(error), FailureKind.AUTHENTICATION)
        except OSError as error:  # the password cannot be read
            self._close(reason_of(error), FailureKind.DISCONNECTED)
        else:
            versions = AUTHENTICATE_VERSIONS if version is None else (version, version)
            self._send(_Call(registry.API_KEYS[key], query, versions, RESPONSE_TIMEOUT_S, self._continue_login))

    def _end_renewal(self, renew_at: float) -> None:
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
        """Return an error text if there is no common version."""
        ours, theirs = registry.versions(API_KEYS[api]), self.versions.ranges.get(API_KEYS[api])
        if theirs is None:
            return f"{self.address} does not serve {api}"
        low, high = max(versions[0], ours[0], theirs[0]), min(versions[1], ours[1], theirs[1])
        if low > high:
            return f"{self.address} has {api} {theirs[0]} to {theirs[1]}, and {versions[0]} to {versions[1]} is needed"
        return high

    def _set_deadline(self) -> None:
        """Search all waiting requests: they are few, and their timeouts differ."""
        self._scope.deadline = min((each.deadline for each in self._in_flight), default=math.inf)

    def _expire(self) -> None:
        late = min(self._in_flight, key=lambda each: each.deadline, default=None)
        if self.trouble or late is None:
            return
        text = f"{late.api}: {self.address} did not respond within {late.timeout_s:g} s"
        self._in_flight.remove(late)
        self.close(f"{late.api} had no response within {late.timeout_s:g} s")
        late.done(RequestFailure(FailureKind.TIMED_OUT, text))

    async def _write_and_read(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._close_on_error, self._write)
            nursery.start_soon(self._close_on_error, self._read)

    @trio.lowlevel.enable_ki_protection
    async def _close_on_error(self, work: Callable[[], Any]) -> None:
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
            self._on_frame(await self._read_frame())

    def _on_frame(self, frame: Buffer) -> None:
        if not self._in_flight:
            raise RemoteProtocolError("a response without a request")
        first = self._in_flight[0]  # removed only after its response was read, so that otherwise `close` fails it
        correlation_id_received, response = frames.decode_response(API_KEYS[first.api], first.version, frame)
        if correlation_id_received != first.correlation_id:
            raise RemoteProtocolError(
                f"request {correlation_id_received} got a response instead of request {first.correlation_id}"
            )
        self._in_flight.popleft()
        self.has_responded = True
        self._set_deadline()
        first.done(response)
        if self._held_back:
            self._renew_session()
        if self._close_reason_when_idle is not None:
            self.close_when_idle(self._close_reason_when_idle)

    async def _read_frame(self) -> Buffer:
        head = await self._read_exactly(4)
        size = int.from_bytes(head, "big", signed=True)
        if not frame_sizes.RESPONSE_MIN <= size <= self._response_bytes_max:
            raise frame_sizes.wrong_size(size, self._response_bytes_max, frame_sizes.RESPONSE_MIN)
        if size > READ_BYTES:
            return await self._read_large(size)
        self._memory.drop_unused()
        return await self._read_exactly(size)

    async def _read_large(self, size: int) -> memoryview:
        """Read a large frame without an intermediate copy. Records refer to its bytes."""
        frame = self._memory.take(size)
        filled = min(size, len(self._received))
        frame[:filled] = self._received[:filled]
        del self._received[:filled]
        while filled < size:
            filled += await self._read_into(frame[filled : filled + READ_BYTES_MAX])
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

    async def _read_exactly(self, size: int) -> bytes:
        while (missing := size - len(self._received)) > 0:
            chunk = await self._stream.receive_some(max(READ_BYTES, missing))
            if not chunk:
                raise UpstreamLost(CLOSED)
            self._received += chunk
        data = bytes(memoryview(self._received)[:size])
        del self._received[:size]
        return data
