"""A member of a share group on the driver, with blocking sockets: it acquires offsets and holds them until settled.

See pipeline/README.md rules 43 to 46. The member has one session (`share_locks.py`) with each leader of its partitions.
Nodes are queried in parallel, so that one that waits or is down does not delay the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient, TryAgain
from kafka_share_proxy.pipeline.kafka.connection import BlockingConnection
from kafka_share_proxy.pipeline.share.share_locks import AcquiredOffsets, Fetched, LockSession
from kafka_share_proxy.pipeline.share.share_membership import BlockingShareMembership
from kafka_share_proxy.pipeline.share.share_options import ShareSourceOptions
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import TopicPartition

T = TypeVar("T")
_AcquiredByPartition = dict[TopicPartition, list[AcquiredOffsets]]

PARALLEL_NODES_MAX = 32


class ShareMember:
    """Member of a share group. `fetch` and `accept` are for one thread."""

    def __init__(self, options: ShareSourceOptions, note: Callable[[str], None]) -> None:
        self._options = options
        self._note = note
        self._membership = BlockingShareMembership(options)
        self._cluster = BlockingClusterClient(options.source)
        self._sessions: dict[int, LockSession] = {}
        self._ended_lost = self._ended_renewals = 0
        self._pool = ThreadPoolExecutor(PARALLEL_NODES_MAX, thread_name_prefix="share nodes")

    def __enter__(self) -> ShareMember:
        try:
            self._membership.join()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.release_locks()
        self._membership.leave()
        self._cluster.close()
        self._pool.shutdown()

    def release_locks(self) -> None:
        """Release all locks."""
        for session in self._sessions.values():
            session.close()

    @property
    def lost(self) -> int:
        return self._ended_lost + sum(session.lost for session in self._sessions.values())

    @property
    def renewals(self) -> int:
        return self._ended_renewals + sum(session.renewals for session in self._sessions.values())

    def fetch(self, offsets_max: int, wait_s: float) -> Fetched:
        """Acquire offsets at all leaders.

        `offsets_max` limits their number; each node may exceed its share by a batch. Raises ProxyError. A session that
        failed has released its locks.
        """
        if self._membership.failed is not None:
            raise self._membership.failed
        try:
            by_node = self._by_node(self._membership.assigned)
        except (TryAgain, UpstreamLost) as error:
            self._cluster.forget()
            return Fetched([], [str(error)])
        self._prune(by_node)
        share = max(1, offsets_max // max(1, len(by_node)))
        fetches = [
            partial(self._sessions[node].fetch, readable=partitions, count_max=share, wait_s=wait_s)
            for node, partitions in by_node.items()
        ]
        fetched = self._in_parallel(fetches)
        troubles = [text for each in fetched for text in each.troubles]
        if troubles:
            self._cluster.forget()  # a leader may have moved
        return Fetched([acquired for each in fetched for acquired in each.acquired], troubles)

    def accept(self, acquired: Iterable[AcquiredOffsets]) -> list[AcquiredOffsets]:
        """Accept acquired offsets. Return those that were not accepted, or whose outcome is unknown."""
        by_session: dict[LockSession, dict[TopicPartition, list[AcquiredOffsets]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for each in acquired:
            by_session[each.session][each.partition].append(each)
        refused = self._in_parallel([partial(_accept, session, acquired) for session, acquired in by_session.items()])
        return [each for one in refused for each in one]

    def _in_parallel(self, work: Iterable[Callable[[], T]]) -> list[T]:
        """Raise the first error after all calls have ended."""
        futures = [self._pool.submit(each) for each in work]
        troubles = [error for each in futures if (error := each.exception()) is not None]
        if troubles:
            raise troubles[0]
        return [each.result() for each in futures]

    # Sessions

    def _by_node(self, assigned: Mapping[TopicPartition, bytes]) -> dict[int, dict[TopicPartition, bytes]]:
        """Group by leader. A partition without one is looked up again for the next fetch."""
        by_node: dict[int, dict[TopicPartition, bytes]] = defaultdict(dict)
        for partition, topic_id in assigned.items():
            leader = self._cluster.topic(partition.topic).leaders.get(partition.partition, -1)
            by_node[leader][partition] = topic_id
        if by_node.pop(-1, None):
            self._cluster.forget()
        return by_node

    def _prune(self, by_node: Mapping[int, Any]) -> None:
        for node, session in list(self._sessions.items()):
            if session.is_over or (node not in by_node and session.is_idle):
                session.close()
                self._ended_lost += session.lost
                self._ended_renewals += session.renewals
                del self._sessions[node]
        for node in by_node:
            if node not in self._sessions:
                self._sessions[node] = self._open_session(node)

    def _open_session(self, node: int) -> LockSession:
        source, address = self._options.source, self._cluster.address(node)

        def dial() -> BlockingConnection:
            return BlockingConnection(address, source.security, source.client_id)

        return LockSession(node, dial, self._membership.name, source.fetch_bytes, self._note)


def _accept(session: LockSession, acquired: _AcquiredByPartition) -> list[AcquiredOffsets]:
    spans = {partition: [each.span for each in records] for partition, records in acquired.items()}
    refused = session.acknowledge(AcknowledgeType.ACCEPT, spans)
    return [
        each
        for partition, records in acquired.items()
        for each in records
        if each.span in set(refused.get(partition, ()))
    ]
