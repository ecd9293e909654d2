"""Blocking connection to a broker with the project's codec, one request at a time. For tools and tests."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from types import TracebackType
from typing import Any

from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import Address

TIMEOUT_S = 30.0
"""Seconds to wait for one response, in addition to the wait that the request itself allows."""
FRAME_BYTES_MAX = 100 << 20

_COMPILING = threading.Lock()
"""Lock around codec creation: the codec cache would create two for two threads."""


class Connection:
    """One TCP connection. `timeout_s` limits the connect and every response."""

    def __init__(self, address: Address, client_id: str = "share-client", timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self.client_id = client_id
        self._numbers = itertools.count(1)
        self._socket = socket.create_connection(address, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> Connection:
        """Return the connection itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection. Repeated calls are allowed."""
        self._reader.close()
        self._socket.close()

    def send_request(self, key: int, version: int, message: Any) -> Any:
        """Send a request and return the decoded response.

        Raises OSError (also after a time-out, or if the broker closes the connection), RemoteProtocolError.
        """
        number = self.send(key, version, message)
        correlation_id, response = frames.decode_response(key, version, self.receive())
        if correlation_id != number:
            raise RemoteProtocolError(f"answer {correlation_id} came for request {number}")
        return response

    def send(self, key: int, version: int, message: Any) -> int:
        """Send a request and return its correlation id."""
        with _COMPILING:
            registry.request(key, version)
            registry.response(key, version)
        number = next(self._numbers)
        self._socket.sendall(frames.request(key, version, number, self.client_id, message))
        return number

    def receive(self) -> bytes:
        """Return the next frame, without its size."""
        size = int(struct.unpack(">i", self._exactly(4))[0])
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise RemoteProtocolError(f"a frame of {size} bytes")
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = self._reader.read(count)
        if len(data) < count:
            raise ConnectionError(f"{self.address} closed the connection")
        return data


def build(name: str, **values: Any) -> Any:
    """Build a message by its schema name. Nested structures may be dicts.

    Raises TypeError for a field that the schema does not have.
    """
    with _COMPILING:
        root = registry.message(name)
    return _build(root, root, values)


def _build(root: Any, message_class: Any, values: dict[str, Any]) -> Any:
    structs = {field.attribute: field.struct for field in message_class.SPEC.fields if field.struct is not None}
    full = {}
    for name, value in values.items():
        struct_of = structs.get(name)
        nested = getattr(root, struct_of.name) if struct_of is not None else None
        if nested is not None and isinstance(value, dict):
            full[name] = _build(root, nested, value)
        elif nested is not None and isinstance(value, list | tuple):
            full[name] = [_build(root, nested, each) if isinstance(each, dict) else each for each in value]
        else:
            full[name] = value
    return message_class(**full)
