"""A request that is served here: Kafka's muted channel, for one connection (decision 12).

    IDLE ─ a request was gathered ─▶ WAITING ─ all earlier answers are written ─▶ RUNNING ─ it answered ─▶ ANSWERING
      ▲                                                                              │ None: forwarded           │
      └──────────────────────────────────────────────────────────────────────────────┴─── the kernel has it ─────┘

In every state but IDLE nothing is read from the client; what was received behind the request is kept by the connection.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from proxy.apis.ports import Call
from proxy.apis.promise import Task
from proxy.errors import LocalProtocolError, RemoteProtocolError
from proxy.runtime import requests
from proxy.wire import frames

if TYPE_CHECKING:
    from proxy.runtime.connection import Connection


class Stage(Enum):
    """How far the request is."""

    IDLE = auto()
    WAITING = auto()
    RUNNING = auto()
    ANSWERING = auto()


class Serving:
    """The local request of one connection; there is at most one."""

    __slots__ = ("_answer_bytes", "_asked", "_connection", "_frame", "_task", "client_id", "stage")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.stage = Stage.IDLE
        self._asked: requests.Asked | None = None
        self._frame = memoryview(b"")
        self._task: Task[frames.Answer | None] | None = None
        self._answer_bytes = 0
        self.client_id: str | None = None
        """What the client called itself last; the proxy's own requests carry it, for brokers have quotas by it."""

    def mute(self, asked: requests.Asked, frame: memoryview) -> None:
        """A request came whole; it starts when everything before it is answered."""
        if self.stage is not Stage.IDLE:
            raise LocalProtocolError("a second local request while one is being served")
        self.stage = Stage.WAITING
        self._connection.is_muted = True
        self._asked = asked
        self._frame = frame

    def start(self) -> None:
        """Everything before it is answered: run the handler. A request that cannot be read ends the connection."""
        asked = self._asked
        assert asked is not None  # noqa: S101  # muted
        assert asked.route.handler is not None  # noqa: S101  # the table gives LOCAL and INSPECT one
        self.stage = Stage.RUNNING
        self._connection.plane.reactor.turns.doing = self._connection, asked.route
        try:
            call = self._decode(asked)
        except RemoteProtocolError as error:
            self._connection.failed(error)
            return
        services = self._connection.plane.services
        self._task = Task(asked.route.handler(call, services), self._done)
        self._task.start()

    def goes_on(self) -> None:
        """Something that the handler may wait for is here: what takes long from now on is most likely its."""
        if self.stage is Stage.RUNNING and self._asked is not None:
            self._connection.plane.reactor.turns.doing = self._connection, self._asked.route

    def written(self) -> None:
        """The kernel has the whole answer."""
        self._connection.plane.budget.sent(self._answer_bytes)
        self._answer_bytes = 0
        self._unmute()

    def cancel(self) -> None:
        """The connection ends; what is still unsent is accounted for by `take_unsent`."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def take_unsent(self) -> int:
        """Bytes of the answer that the budget still counts; from now on the caller gives them back."""
        taken, self._answer_bytes = self._answer_bytes, 0
        return taken

    def _decode(self, asked: requests.Asked) -> Call:
        frame = self._frame[4:]
        if asked.route.opaque:
            message = frame
        else:
            header, message = frames.decode_request(frame)
            self.client_id = header.client_id
        return Call(
            key=asked.route.key,
            version=asked.route.version,
            correlation_id=asked.head.correlation_id,
            client_id=None if asked.route.opaque else self.client_id,
            message=message,
            connection=self._connection,
        )

    def _done(self, task: Task[frames.Answer | None]) -> None:
        """The handler ended, in whatever call settled its last promise: nothing may be raised from here."""
        connection, self._task = self._connection, None
        if connection.closed:
            return
        if task.error is not None:
            assert isinstance(task.error, Exception)  # noqa: S101  # Task catches no other
            connection.handler_failed(task.error)
        elif task.value is None:
            connection.guarded(self._forward)
        else:
            connection.guarded(lambda: self._answer(task.value or b""))

    def _forward(self) -> None:
        assert self._asked is not None  # noqa: S101  # it was running
        requests.pass_whole(self._connection, self._asked, self._frame)
        self._unmute()
        self._connection.update()

    def _answer(self, answer: frames.Answer) -> None:
        self.stage = Stage.ANSWERING
        self._frame = memoryview(b"")
        self._answer_bytes = len(answer)
        self._connection.plane.budget.add_unsent(len(answer))
        self._connection.answer(answer)

    def _unmute(self) -> None:
        self.stage = Stage.IDLE
        self._connection.is_muted = False
        self._asked = None
        self._frame = memoryview(b"")
        self._connection.up.resume_soon()
