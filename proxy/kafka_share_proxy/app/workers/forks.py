"""Process that has loaded the program and forks workers: its side. See `fork_server` for the supervisor's."""

from __future__ import annotations

import os
import socket

from kafka_share_proxy.app.workers import channel

DESCRIPTOR = "_KAFKA_SHARE_PROXY_FORKS"
"""Environment variable with the number of the descriptor at which the supervisor requests workers."""
PID_BYTES = 8


def requests() -> socket.socket | None:
    """Return the end at which the supervisor requests workers. None if no supervisor started this process for that."""
    return channel.inherited(DESCRIPTOR)


def next_worker(end: socket.socket) -> socket.socket | None:
    """Fork a worker for each socket that the supervisor sends, and report its process id.

    Returns the socket in each worker, and None in this process once the supervisor has ended. Raises OSError if the
    system has no room for a process. This process must have one thread, because no other survives a fork.
    """
    with end:
        while (received := channel.receive(end)) is not None:
            (theirs,) = received[1]
            pid = _fork_orphan()
            if pid == 0:
                os.setpgid(0, 0)  # no signals of the terminal
                return theirs
            theirs.close()
            channel.send(end, {"pid": pid})
    return None


def _fork_orphan() -> int:
    """Fork a process whose parent ends, so that the supervisor becomes its parent. Return its id, and 0 in itself."""
    readable, writable = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(readable)
        pid = _fork_and_report(writable)
        if pid:
            os._exit(0)
        return 0
    os.close(writable)
    pid = int.from_bytes(os.read(readable, PID_BYTES), "little")
    os.close(readable)
    os.waitpid(between, 0)
    if not pid:
        raise OSError("cannot fork a worker: the limit of processes or of memory is reached")
    return pid


def _fork_and_report(writable: int) -> int:
    try:
        pid = os.fork()
    except OSError:
        os._exit(1)
    if pid:
        os.write(writable, pid.to_bytes(PID_BYTES, "little"))
    os.close(writable)
    return pid
