"""Server in threads with scripted responses to Kafka requests, for clients with blocking sockets."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

Responses = Callable[[RequestHeader, Any], Any]
"""(header, request) -> response; None: the connection is closed instead."""
ACCEPT_S = 30.0

OFFERED = {
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 9),
    ApiKey.METADATA: (0, 13),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}


class BlockingServer:
    """Listens on a port of the kernel's choice until it is left."""

    def __init__(self, responses: Responses, tls: ssl.SSLContext | None = None) -> None:
        self._responses = responses
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(ACCEPT_S)
        self.port: int = self._listener.getsockname()[1]
        self.requested: list[tuple[int, int]] = []
        """(key, version) of every request, in order."""
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets: list[socket.socket] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End every connection; new ones are served."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> BlockingServer:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(ACCEPT_S)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(ACCEPT_S)
                self._sockets.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        reader = frames.FrameReader()
        with suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._sockets.append(connection)
            while data := connection.recv(1 << 16):
                for frame in reader.receive_data(data):
                    header, request = frames.decode_request(frame)
                    self.requested.append((header.key, header.version))
                    response = self._response(header, request)
                    if response is None:
                        connection.close()
                        return
                    connection.sendall(frames.response(header.key, header.version, header.correlation_id, response))

    def _response(self, header: RequestHeader, request: Any) -> Any:
        if header.key != ApiKey.API_VERSIONS:
            return self._responses(header, request)
        entry = messages.ApiVersionsResponse.ApiVersion
        offered = [entry(api_key=key, min_version=low, max_version=high) for key, (low, high) in OFFERED.items()]
        return messages.ApiVersionsResponse(api_keys=offered)
