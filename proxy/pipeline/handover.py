"""Batches of a share group, handed from the job's process to the source, which Spark runs in another.

See pipeline/README.md rule 47.

A line of JSON each way over a Unix socket in a folder that only this user may enter: so no secret is needed, and none
stands in the options of a query. `{"ask": "acquire", "after": 3}` is answered with `{"offset": {...}}` or null there,
`{"ask": "planned", "offset": {...}}` with `{}`, and both, where they fail, with `{"error": "..."}`.
"""

from __future__ import annotations

import json
import shutil
import socket
import socketserver
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from proxy.pipeline.cluster import TryAgain
from proxy.pipeline.share_offsets import ShareOffset, read_written_share, written_share
from proxy.wire.errors import ProxyError
from proxy.wire.values import MIB

if TYPE_CHECKING:
    from proxy.pipeline.acquirer import ShareAcquirer

LINE_MAX = 4 * MIB
"""Of one message; a batch of 1,000 ranges has some 60 KiB."""


class HandoverFailed(ProxyError):
    """The job's process has no batch to give; the text says why."""


class Handover(socketserver.ThreadingUnixStreamServer):
    """The job's side."""

    daemon_threads = True

    def __init__(self, acquirer: ShareAcquirer) -> None:
        """Listen; nobody is answered before `with`."""
        self._folder = tempfile.mkdtemp(prefix="share-")
        self.path = str(Path(self._folder) / "acquirer")
        self._acquirer = acquirer
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="share hand-over", daemon=True)
        try:
            super().__init__(self.path, _Asked)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __enter__(self) -> Handover:
        """Answer from now on."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it all."""
        self.shutdown()
        self.server_close()
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As it is, and known while it lasts."""
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)

    def answer(self, line: bytes) -> dict[str, Any]:
        """What is answered to a message."""
        try:
            asked = json.loads(line)
            if asked["ask"] == "planned":
                self._acquirer.planned(read_written_share(asked["offset"]))
                return {}
            found = self._acquirer.acquire(asked["after"])
            return {"offset": None if found is None else written_share(found)}
        except (ProxyError, TryAgain) as error:
            return {"error": str(error)}


class _Asked(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with suppress(OSError):
            while line := self.rfile.readline(LINE_MAX):
                answer = cast("Handover", self.server).answer(line)
                self.wfile.write(json.dumps(answer).encode() + b"\n")


class HandoverClient:
    """The source's side. Not for several threads."""

    def __init__(self, path: str) -> None:
        """Nothing is dialled yet; the path is that of the Handover."""
        self._path = path
        self._socket: socket.socket | None = None

    def acquire(self, after: int) -> ShareOffset | None:
        """The next batch; None: there is nothing now. Raises HandoverFailed."""
        offset = self._ask({"ask": "acquire", "after": after})["offset"]
        return None if offset is None else read_written_share(offset)

    def planned(self, offset: ShareOffset) -> None:
        """Say that this batch is read now. Raises HandoverFailed."""
        self._ask({"ask": "planned", "offset": written_share(offset)})

    def close(self) -> None:
        """Harmless twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            line = self._exchange(json.dumps(message).encode() + b"\n")
        except OSError as error:
            self.close()
            raise HandoverFailed(f"the process that acquires for this query is gone: {error}") from None
        if not line:
            self.close()
            raise HandoverFailed("the process that acquires for this query is gone: it closed the connection")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise HandoverFailed(answer["error"])
        return answer

    def _exchange(self, line: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(self._path)
        self._socket.sendall(line)
        with self._socket.makefile("rb") as answers:  # one answer for each message: nothing is left behind in it
            return answers.readline(LINE_MAX)
