"""Clusters and proxies that a test session runs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

SOURCE_ROOT = str(Path(__file__).resolve().parents[2] / "proxy")
if SOURCE_ROOT not in sys.path:  # in a bench, which no conftest has prepared
    sys.path.insert(0, SOURCE_ROOT)

from kafka_share_proxy.localkafka.cluster import Cluster, Sasl  # noqa: E402 - found through the path set above
from kafka_share_proxy.localkafka.front import Front  # noqa: E402
from kafka_share_proxy.localkafka.java import FULL_SPEED as FULL_SPEED  # noqa: E402

from tests.support import warm_proxies  # noqa: E402
from tests.support.worlds import warm_up  # noqa: E402

OLD, NEW = "3.9.1", "4.3.0"
"""The release without share groups, and the one that has them."""
NEWEST = "4.4.0"
"""The release that also has dead letters."""

CLASSIC = {"group.coordinator.rebalance.protocols": "classic"}
"""The default of 3.9, whose coordinator is another one then: it has no groups of KIP-848, and gathers no commits."""
COORDINATORS: dict[str, tuple[str, dict[str, str]]] = {OLD: (OLD, {}), f"{OLD}-classic": (OLD, CLASSIC), NEW: (NEW, {})}
"""Each group coordinator that there is -> the release and the settings that have it."""
QUICK = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.assignment.interval.ms": "0",
}
"""Bounds that allow locks of a second and immediate assignment; other defaults stay."""
TIGHT = QUICK | {"group.share.max.size": "2", "group.share.max.share.sessions": "2"}
"""Two members, two sessions."""
VIEWS = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}, "views": {"growth_interval_s": 1}}
"""Settings of a proxy that looks every second whether bases of views have grown."""
USERS = Sasl({"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}, super_user="admin")


class Running:
    """Starts clusters and proxies in folders of one test session, and shows their logs when a test fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._stack = ExitStack()
        self.logs: dict[str, Callable[[], str]] = {}

    def cluster(self, release: str, **options: Any) -> Cluster:
        name = f"kafka-{release}-{next(self._numbers)}"
        cluster = self._stack.enter_context(Cluster(release, self._folder / name, **options))
        self.logs[name] = cluster.logs
        return cluster

    def native(self, **options: Any) -> Cluster:
        """A cluster that serves share groups itself, ready for the first of them."""
        cluster = self.cluster(NEW, **options)
        warm_up(cluster.bootstrap)
        return cluster

    def front(
        self, upstream: str, settings: dict[str, Any] | None = None, command: Sequence[str] | None = None
    ) -> Front:
        name = f"proxy-{next(self._numbers)}"
        front = Front(upstream, self._folder / name, settings, command=command, launch=warm_proxies.launch)
        self.logs[name] = front.output
        return self._stack.enter_context(front)

    def close(self) -> None:
        self._stack.close()
