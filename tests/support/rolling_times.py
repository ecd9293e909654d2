"""Times of events after a broker stops: states of the cluster and the proxy, queried repeatedly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any

from kafka_share_proxy.localkafka.cluster import Cluster, Node

from tests.support.raw import Raw

LOOK_S = 0.05
"""Between two looks."""


Place = tuple[str, int]
"""Topic and partition."""


@dataclass
class Changes:
    """Changes, in the order of time."""

    brokers: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    """Brokers in Metadata, from that moment on."""
    moved: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Time at which a partition's leader moved, with the previous leader, by topic."""
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """Why the proxy is not ready to serve share groups, from that moment on; empty while it is."""

    def missed(self, node_id: int, since: int, until: int) -> int | None:
        """Return when the cluster first no longer named a broker."""
        return next((at for at, node_ids in self.brokers if since <= at < until and node_id not in node_ids), None)

    def moved_away(self, node_id: int, label: str, since: int, until: int) -> int | None:
        """Return when the last partition with this label moved from this broker to another leader."""
        return max(
            (at for at, old_node in self.moved[label] if old_node == node_id and since <= at < until), default=None
        )

    def refused(self, since: int, until: int) -> tuple[int, int] | None:
        """Return the longest time in which the proxy served nothing."""
        refusals = [(at, why) for at, why in self.refusals if since <= at < until]
        started_at = next((at for at, why in refusals if why), None)
        ended = max((at for at, why in refusals if not why), default=until)
        return None if started_at is None else (started_at, ended)


class Lookout:
    """Looks while the block runs.

    `led`: partitions whose leaders are of interest, by what they are called. `refusal`: why the proxy serves no share
    groups at this moment; None: there is no proxy.
    """

    def __init__(self, cluster: Cluster, led: Mapping[str, Sequence[Place]], refusal: Callable[[], str] | None) -> None:
        self.changes = Changes(moved={label: [] for label in led})
        self._refusal = refusal
        self._called = {place: label for label, places in led.items() for place in places}
        self._leaders: dict[Place, tuple[int, int]] = {}
        """(epoch, node id) of the last leader."""
        self._raws: dict[int, Raw] = {}
        self._enough = threading.Event()
        self._taking = threading.Lock()
        # Each broker is queried by a separate thread, because a suspended one blocks its caller.
        looks: list[Callable[[], None]] = [partial(self._look_at_broker, node) for node in cluster.nodes]
        looks += [self._look_at_proxy] if refusal else []
        self._threads = [threading.Thread(target=self._repeat, args=[observe], daemon=True) for observe in looks]

    def __enter__(self) -> Lookout:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()
        for raw in self._raws.values():
            raw.close()

    def _repeat(self, observe: Callable[[], None]) -> None:
        while not self._enough.wait(LOOK_S):
            observe()

    def _look_at_proxy(self) -> None:
        assert self._refusal is not None
        why = self._refusal()
        if not self.changes.refusals or self.changes.refusals[-1][1] != why:
            self.changes.refusals.append((time.monotonic_ns(), why))

    def _look_at_broker(self, node: Node) -> None:
        """Record what one broker reports, if it responds. Every broker is queried: a stopped one does not know."""
        with suppress(OSError):
            response = self._query(node)
            with self._taking:
                self._take(node, response)

    def _query(self, node: Node) -> Any:
        try:
            raw = self._raws.get(node.node_id) or self._raws.setdefault(node.node_id, Raw(node.address))
            names = [{"name": name} for name in dict.fromkeys(topic for topic, _ in self._called)]
            return raw.send_request("Metadata", 12, topics=names, allow_auto_topic_creation=False)
        except OSError:
            self._raws.pop(node.node_id, raw).close()
            raise

    def _take(self, node: Node, response: Any) -> None:
        now = time.monotonic_ns()
        node_ids = frozenset(broker.node_id for broker in response.brokers)
        if node.node_id in node_ids:  # else it has just started, and knows nothing yet
            self._take_brokers(now, node_ids)
        for topic in response.topics:
            for each in topic.partitions:
                if (topic.name, each.partition_index) in self._called:
                    self._take_leader(now, (topic.name, each.partition_index), each)

    def _take_brokers(self, now: int, node_ids: frozenset[int]) -> None:
        if not self.changes.brokers or self.changes.brokers[-1][1] != node_ids:
            self.changes.brokers.append((now, node_ids))

    def _take_leader(self, now: int, place: Place, partition: Any) -> None:
        leader = (partition.leader_epoch, partition.leader_id)
        before = self._leaders.setdefault(place, leader)
        if leader > before:
            self._leaders[place] = leader
            if leader[1] != before[1]:
                self.changes.moved[self._called[place]].append((now, before[1]))
