"""Handover of batches of a share group from the job's process to the source, which Spark runs in another process.

See pipeline/README.md rule 47.

Requests and responses are lines of JSON over a Unix socket, in a folder that only this user may enter, so the options
of a query need no secret. The response to `{"ask": "acquire", "after": 3}` is `{"offset": {...}}`, or without records
`{"offset": null}`. The response to `{"ask": "planned", "offset": {...}}` is `{}`. After an error, both are
`{"error": "..."}`.
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
from typing import TYPE_CHECKING, Any, cast

from kafka_share_proxy.pipeline.kafka.cluster import TryAgain
from kafka_share_proxy.pipeline.share.share_offsets import ShareOffset, decode_share_offset, encode_share_offset
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import MIB

if TYPE_CHECKING:
    from kafka_share_proxy.pipeline.share.acquirer import ShareAcquirer

LINE_MAX = 4 * MIB
"""Maximum size of one message. A batch of 1,000 ranges has about 60 KiB."""


class HandoverFailed(ProxyError):
    """The job's process failed to deliver a batch. The text has the reason."""


class Handover(socketserver.ThreadingUnixStreamServer):
    """Server of the handover, in the job's process."""

    daemon_threads = True

    def __init__(self, acquirer: ShareAcquirer) -> None:
        self._folder = tempfile.mkdtemp(prefix="share-")
        self.path = str(Path(self._folder) / "acquirer")
        self._acquirer = acquirer
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="share hand-over", daemon=True)
        try:
            super().__init__(self.path, _RequestHandler)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __enter__(self) -> Handover:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Register the connection, so that `__exit__` can close it."""
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)

    def response(self, line: bytes) -> dict[str, Any]:
        """Return the response to one request."""
        try:
            message = json.loads(line)
            if message["ask"] == "planned":
                self._acquirer.planned(decode_share_offset(message["offset"]))
                return {}
            offset = self._acquirer.acquire(message["after"])
            return {"offset": None if offset is None else encode_share_offset(offset)}
        except (ProxyError, TryAgain) as error:
            return {"error": str(error)}


class _RequestHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with suppress(OSError):
            while line := self.rfile.readline(LINE_MAX):
                response = cast("Handover", self.server).response(line)
                self.wfile.write(json.dumps(response).encode() + b"\n")


class HandoverClient:
    """Client of the handover, in the source. Not thread-safe."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def acquire(self, after: int) -> ShareOffset | None:
        """Acquire a batch. Return None if no records are available. Raises HandoverFailed."""
        offset = self._query({"ask": "acquire", "after": after})["offset"]
        return None if offset is None else decode_share_offset(offset)

    def planned(self, offset: ShareOffset) -> None:
        """Report that Spark reads this batch now. Raises HandoverFailed."""
        self._query({"ask": "planned", "offset": encode_share_offset(offset)})

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _query(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            line = self._exchange(json.dumps(message).encode() + b"\n")
        except OSError as error:
            self.close()
            raise HandoverFailed(f"the process that acquires for this query has ended: {error}") from None
        if not line:
            self.close()
            raise HandoverFailed("the process that acquires for this query has ended: it closed the connection")
        response: dict[str, Any] = json.loads(line)
        if "error" in response:
            raise HandoverFailed(response["error"])
        return response

    def _exchange(self, line: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(self._path)
        self._socket.sendall(line)
        with self._socket.makefile("rb") as responses:  # one response per message: the buffer holds no other
            return responses.readline(LINE_MAX)
