"""Program of a process that has loaded `kafka-share-proxy serve` and forks proxies (tests/support/warm_proxies.py).

It has one thread, because no other survives a fork. It ends with the process of the tests, and its proxies end with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

SIZE_BYTES = 4
PR_SET_PDEATHSIG = 1


def send(end: socket.socket, message: Any, descriptors: list[int]) -> None:
    """Send a message with open files."""
    content = json.dumps(message).encode()
    socket.send_fds(end, [len(content).to_bytes(SIZE_BYTES, "little")], descriptors)
    end.sendall(content)


def receive(end: socket.socket) -> tuple[Any, list[int]] | None:
    """Return the next message and its open files; None when the other process has ended."""
    size, descriptors, _, _ = socket.recv_fds(end, SIZE_BYTES, 1)
    if len(size) < SIZE_BYTES:
        return None
    content = b""
    missing = int.from_bytes(size, "little")
    while missing and (part := end.recv(missing)):
        content, missing = content + part, missing - len(part)
    return None if missing else (json.loads(content), descriptors)


def _load() -> None:
    """Import what `serve` imports with any settings, as a worker does before it is forked."""
    from kafka_share_proxy.app import command_line

    command_line._load_typer()
    command_line._load_pydantic()
    from kafka_share_proxy.app import cli  # noqa: F401 - imported for the proxies
    from kafka_share_proxy.app.serving import server

    server.load_libraries((*server.LIBRARIES, *server.FIRST_USED))


def _serve_requests(end: socket.socket) -> tuple[Any, int] | None:
    """Fork proxies and report exit statuses. Return the request and the log in a new proxy, None at the end."""
    while (received := receive(end)) is not None:
        request, descriptors = received
        if "pid" in request:
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
            send(end, os.waitstatus_to_exitcode(status) if pid else None, [])
            continue
        pid = os.fork()
        if pid == 0:
            return request, descriptors[0]
        os.close(descriptors[0])
        send(end, pid, [])
    return None


def _become(request: Any, log: int, parent: int) -> None:
    """Be as a command that was just started, with its arguments, environment, folder and output."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]


def main() -> None:
    """Serve requests at the socket with the number in the first argument."""
    _load()
    parent = os.getpid()
    with socket.socket(fileno=int(sys.argv[1])) as end:
        forked = _serve_requests(end)
    if forked is None:
        return
    _become(*forked, parent)
    from kafka_share_proxy.app import command_line

    command_line.main()


if __name__ == "__main__":
    main()
