"""Messages between a supervisor and a worker: JSON over a socket that keeps their boundaries, with descriptors."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

MESSAGE_BYTES_MAX = 160 << 10
"""Maximum bytes of a message. The kernel accepts about 200 KiB."""
SOCKETS_MAX = 16
"""Maximum number of sockets in a message: the addresses of one host name."""

Body = dict[str, Any]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def inherited(variable: str) -> socket.socket | None:
    """Return the end whose descriptor this environment variable names, which is removed. None if it is not set."""
    descriptor = os.environ.pop(variable, None)
    return None if descriptor is None else socket.socket(fileno=int(descriptor))


def send(end: socket.socket, body: Mapping[str, object], sockets: Sequence[socket.socket] = ()) -> None:
    """Send one message. Raises OSError if the other side has gone, or the message is too large."""
    data = json.dumps(body).encode()
    if len(data) > MESSAGE_BYTES_MAX:
        raise OSError(f"a message of {len(data)} bytes to or from a worker; at most {MESSAGE_BYTES_MAX} are possible")
    socket.send_fds(end, [data], [sock.fileno() for sock in sockets])


def receive(end: socket.socket) -> tuple[Body, list[socket.socket]] | None:
    """Return a message and its sockets. None if the other side has gone."""
    data, descriptors, _, _ = socket.recv_fds(end, MESSAGE_BYTES_MAX, SOCKETS_MAX)
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    if not data:
        return None
    for sock in sockets:
        os.set_inheritable(sock.fileno(), False)
    return json.loads(data), sockets
