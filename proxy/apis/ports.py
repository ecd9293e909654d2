"""What a handler may ask for: the doors between `apis` and the outside. `runtime` builds the real ones.

A handler is `async def handle(call: Call, services: Services) -> bytes | None`: the whole response frame, or None to
let the request pass to the broker unchanged. It awaits only promises (`apis.promise`), so a plain call from the reactor
drives it. While it runs its connection is muted (decision 12), so at most one handler runs per connection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from proxy.apis.promise import Promise
from proxy.apis.slices import AT_ONCE, Work
from proxy.errors import ErrorCode, ProxyError
from proxy.values import ZERO_UUID

T = TypeVar("T")


class Connection(Protocol):
    """One client connection, with the upstream connection that belongs to it alone."""

    @property
    def id(self) -> int:
        """Unique in this process."""

    @property
    def node_id(self) -> int:
        """The broker whose listener the client dialled; UNKNOWN_NODE on the bootstrap listener."""

    @property
    def client_host(self) -> str:
        """The client's address without port."""

    @property
    def memory(self) -> dict[str, Any]:
        """What handlers remember for this connection only (rights, upstream versions); gone with it."""

    def ask(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """Send a request of the proxy's own on the client's upstream connection, as its principal.

        `body` is encoded without header; the promise gives the response body without header. Requests are answered
        in order. Fails with UpstreamLost when the connection ends first, RemoteProtocolError when the answer is
        larger than `limits.collected_bytes`. Cancelling the waiter does not unsend: a late answer is dropped
        unless a callback is still registered on the promise.
        """

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back once when this client connection ends, after its handler (if any) was cancelled."""


class Timer(Protocol):
    """A call planned for later."""

    def cancel(self) -> None:
        """Do not call; harmless when it has been called or cancelled."""


class Timers(Protocol):
    """The reactor's clock and alarm."""

    def now(self) -> float:
        """Monotonic seconds, read once per loop turn."""

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since 1970: for `by_duration` and for answers that carry a time."""

    def call_at(self, deadline: float, callback: Callable[[], None]) -> Timer:
        """Call once, at or soon after `deadline` on the clock of `now`."""


class WorkersBusy(ProxyError):
    """More computations wait for a thread than may; nothing was begun."""


class Workers(Protocol):
    """Threads for computations that would hold up the loop (performance.md 4: more than about a millisecond)."""

    def run(self, work: Callable[[], T], owner: Hashable = None, *, is_large: bool = False) -> Promise[T]:
        """Compute elsewhere; settled in the loop. `work` touches nothing that anybody changes meanwhile.

        Args:
            work: what is computed.
            owner: on whose account; owners share the threads' time.
            is_large: it may take far longer than others', which do not wait behind it.

        Fails with WorkersBusy: too much waits already.
        """


class Notes(Protocol):
    """Where handlers and machines say what happened: becomes a log line and counters (`observe`)."""

    def __call__(self, event: str, /, **context: Any) -> None:
        """Note an event (kebab-case) and its circumstances."""


class StateKey(NamedTuple):
    """Names one piece of durable state; its latest value is all that counts (decision 20)."""

    kind: Literal["partition", "group", "settings"]
    group_id: str
    topic_id: bytes = ZERO_UUID
    """Only of kind "partition"."""
    partition: int = -1
    """Only of kind "partition"."""


class JournalRefused(ProxyError):
    """A refusal: nothing of that append is or ever will be stored.

    Except where ownership is lost (NOT_COORDINATOR): nobody here knows then, and memory is not served from any more.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class Journal(Protocol):
    """Where state becomes durable before anybody is told about it."""

    def append(self, records: Sequence[tuple[StateKey, bytes | None]]) -> Promise[None]:
        """Store the values (None deletes the key), all or none; settled once they are durable.

        Fails with JournalRefused. An unknown outcome is the journal's to resolve: it repeats until it knows.
        """


class OwnQuestions(Protocol):
    """Requests under the proxy's own identity, to brokers that the asking client's connection does not lead to."""

    def ask(self, node_id: int, key: int, request: Any) -> Promise[Any]:
        """The decoded answer, in the highest version both sides know.

        Fails with a ProxyError: no such broker, not reached, no answer in time, too many questions at once.
        """


@dataclass(slots=True)
class Call:
    """One request that is served here."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Any
    """The decoded request (a message class of `proxy.wire.registry`)."""
    connection: Connection
    work: Work = AT_ONCE
    """Lets others run while this request, if it is a large one, is worked on."""
    frame: memoryview | None = None
    """The request as it came, without its size, where it came from a client."""


UpstreamVersions = Mapping[int, tuple[int, int]]
"""API key -> (lowest, highest) version, as a broker's ApiVersions answered."""
