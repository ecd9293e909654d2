"""Start of `serve`: one process, a supervisor with several, or a worker."""

from __future__ import annotations

from collections.abc import Callable

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import seat
from kafka_share_proxy.app.workers.seat import SupervisorLink


def serve(read: Callable[[], Config]) -> int:
    """Serve until a signal, and return the exit status. A worker gets its settings from its supervisor.

    Raises:
        ConfigError: a setting is invalid. OSError: a port cannot be bound.
    """
    link = seat.supervisor()
    if link is not None:
        return _work(link)
    config = read()
    if config.worker_count > 1:
        from kafka_share_proxy.app.workers import supervisor  # loads no features, which only workers need

        return supervisor.run(config, read)
    from kafka_share_proxy.app.serving import server

    return server.run(config, read=read)


def _work(link: SupervisorLink) -> int:
    from kafka_share_proxy.app.serving import server

    walked_s = server.prepare()
    link.wait_until_hired()
    return server.run(link.settings(), read=link.settings, seat=link.seat(), walked_s=walked_s)
