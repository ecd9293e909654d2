"""Access of commands to the brokers, under the identity of the settings and without a running proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from kafka_share_proxy.app.serving.composition import cluster_client_settings
from kafka_share_proxy.app.settings import tls_contexts
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.loop import faults

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run a function in Trio. Of several errors that ended it together, the first is raised."""
    try:
        return trio.run(work)
    except BaseExceptionGroup as group:
        raise faults.first_of(group) from None


def cluster_client(config: Config) -> ClusterClient:
    """Return a client without open connections. Raises ConfigError if TLS files are invalid."""
    settings = cluster_client_settings(config, tls_contexts.towards_brokers(config.upstream.tls))
    return ClusterClient(config.upstream.bootstrap, settings, config.upstream.nodes)


@asynccontextmanager
async def open_nodes(config: Config) -> AsyncIterator[OpenNodes]:
    """Open connections to brokers as they are needed, and close all at the end. Raises ConfigError."""
    nodes = OpenNodes(cluster_client(config))
    try:
        yield nodes
    finally:
        with trio.CancelScope(shield=True):
            await nodes.aclose()
            await nodes.client.aclose()
