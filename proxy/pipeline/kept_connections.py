"""Connections that a worker keeps from one task to the next (pipeline/README.md rule 5).

A task of a micro-batch lives for some milliseconds: dialling, versions and a login took more of them than its records,
and as much again at the proxy and at the broker behind it. Leaders are kept as well, while the topic has the same id: a
broker that leads no longer says so, and then they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.options import SourceOptions


class KeptConnections:
    """Those of the last task that came to its end: a worker runs one task at a time. Not for several threads."""

    def __init__(self) -> None:
        self._client: ClusterClient | None = None
        self._options: SourceOptions | None = None

    @contextmanager
    def cluster(self, options: SourceOptions) -> Iterator[ClusterClient]:
        """For one task. Where it fails or is left early, an answer may be under way: its connections are closed."""
        client = self._taken(options)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        client.rest()
        self.close()
        self._client, self._options = client, options

    def close(self) -> None:
        """Keep none any longer. Harmless twice."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _taken(self, options: SourceOptions) -> ClusterClient:
        """The kept ones if the options are the same, login and servers among them; those of another read are closed."""
        if self._client is None or self._options != options:
            self.close()
            return ClusterClient(options)
        client, self._client = self._client, None
        return client
