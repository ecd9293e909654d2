"""Connections that a worker keeps from one task to the next (pipeline/README.md rule 5).

A task of a micro-batch lives for some milliseconds. Connecting, versions and a login took more of them than its
records, and as much again at the proxy and at its broker. Leaders are kept as well, while the topic id is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.source.options import SourceOptions


class KeptConnections:
    """Connections of the last task that ended normally. Not thread-safe."""

    def __init__(self) -> None:
        self._client: BlockingClusterClient | None = None
        self._options: SourceOptions | None = None

    @contextmanager
    def cluster(self, options: SourceOptions) -> Iterator[BlockingClusterClient]:
        """Provide a client for one task, and keep its connections if the task ends normally.

        After a failure they are closed, because a response may be outstanding.
        """
        client = self._client_for(options)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        client.end_task()
        self.close()
        self._client, self._options = client, options

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _client_for(self, options: SourceOptions) -> BlockingClusterClient:
        """Close the client of other options."""
        if self._client is None or self._options != options:
            self.close()
            return BlockingClusterClient(options)
        client, self._client = self._client, None
        return client
