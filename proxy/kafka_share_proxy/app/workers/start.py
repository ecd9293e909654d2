"""Start of `serve`: one process, a supervisor with several, a process that forks workers, or a worker."""

from __future__ import annotations

import socket
from collections.abc import Callable

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import forks, seat
from kafka_share_proxy.app.workers.seat import SupervisorLink


def serve(read: Callable[[], Config]) -> int:
    """Serve until a signal, and return the exit status. A worker gets its settings from its supervisor.

    Raises:
        ConfigError: a setting is invalid. OSError: a port cannot be bound.
    """
    link = seat.supervisor()
    requests = forks.requests()
    if link is not None or requests is not None:
        return _work(link, requests)
    config = read()
    if config.worker_count > 1:
        from kafka_share_proxy.app.workers import supervisor  # loads no features, which only workers need

        return supervisor.run(config, read)
    from kafka_share_proxy.app.serving import server

    return server.run(config, read=read)


def _work(link: SupervisorLink | None, requests: socket.socket | None) -> int:
    """Load the program, and serve as a worker. `requests`: in workers that are forked then; see `forks`."""
    from kafka_share_proxy.app.serving import server

    walked_s = server.prepare()
    if requests is not None:
        end = forks.next_worker(requests)
        link = None if end is None else SupervisorLink(end)
    if link is None:
        return 0
    return server.run(link.settings(), read=link.settings, seat=link.seat(), walked_s=walked_s)
