"""Ends of logs, from which lag is computed, looked up under the proxy's own identity (brokers/README.md rule 23)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata, Topic
from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.loop.promise import Promise, on_its_own, settled
from kafka_share_proxy.loop.slices import Slices, Work
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, error_name
from kafka_share_proxy.wire.values import UNKNOWN_NODE

PARTITIONS_MAX = 10_000
"""Maximum number of partitions in one look-up. The lag of all others is unknown."""
SCANNED_MAX = 100_000
"""Maximum number of partitions that a feature names for one look-up. Several groups name the same partition."""
PERIOD_S = 10.0
"""Minimum seconds between two look-ups, however often lag is read."""
TOPICS_AT_ONCE = 500
"""Maximum number of topics in the Metadata request of one look-up. The others follow in the next ones."""
PARTITIONS_AT_ONCE = 1_000
"""Maximum number of partitions in one ListOffsets request."""
REQUESTS_AT_ONCE = 8
"""Maximum number of ListOffsets requests in flight."""

LATEST = -1
STALE_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)

LoggedPartition = tuple[bytes | str, int]
"""Topic id, or name where the id is unknown, and partition."""


class LogEnds:
    """Ends of logs as of the last look-up. Nothing is looked up until a metric or a page needs them."""

    def __init__(
        self,
        own: ClusterQueries | None,
        topology: ClusterMetadata,
        now: Callable[[], float],
        slices: Slices | None = None,
    ) -> None:
        """`own`: None if the proxy has no identity. Then no end is known."""
        self._own, self._topology, self._now, self._slices = own, topology, now, slices
        self._ends: dict[tuple[str, int], int] = {}
        self._next_at = float("-inf")
        self._under_way: Promise[None] = settled(None)
        self.trouble = ""
        """Reason why an end is unknown or old, from the last look-up. Empty if there is none."""

    def refresh(self, partitions: Callable[[], Iterable[LoggedPartition]]) -> Promise[None]:
        """Look up the ends of these partitions, unless that was done less than PERIOD_S ago.

        Return a promise of the look-up in flight. It never fails.
        """
        if self._under_way.done and self._own is not None and self._now() >= self._next_at:
            self._next_at = self._now() + PERIOD_S
            self._under_way = on_its_own(self._refresh_ends(self._own, islice(partitions(), SCANNED_MAX)))
        return self._under_way

    def of(self, topic: bytes | str, partition: int) -> int | None:
        """Return the end of a log. None if no look-up has returned it."""
        known = self._topic(topic)
        return None if known is None else self._ends.get((known.name, partition))

    def _topic(self, topic: bytes | str) -> Topic | None:
        return self._topology.topic(topic) if isinstance(topic, str) else self._topology.topic_by_id(topic)

    async def _refresh_ends(self, own: ClusterQueries, partitions: Iterable[LoggedPartition]) -> None:
        self.trouble, work = "", Work(self._slices)
        chosen: dict[LoggedPartition, None] = {}
        for each in partitions:
            chosen[each] = None
            if len(chosen) >= PARTITIONS_MAX:
                break
            await work.step()
        await self._learn_topics(own, dict.fromkeys(topic for topic, _ in chosen))
        by_node = await self._by_leader(chosen, work)
        # An end that a leader does not return now stays as it was: a gap would look like a lag of zero.
        self._ends = {at: self._ends[at] for each in by_node.values() for at in each if at in self._ends}
        requests = [(node_id, part) for node_id, each in sorted(by_node.items()) for part in _parts(each)]
        for first in range(0, len(requests), REQUESTS_AT_ONCE):
            sent = [
                own.send_request(node_id, ApiKey.LIST_OFFSETS, _request(part))
                for node_id, part in requests[first : first + REQUESTS_AT_ONCE]
            ]
            for response in sent:
                await self._receive(response)

    async def _by_leader(
        self, chosen: Iterable[LoggedPartition], work: Work
    ) -> dict[int, dict[tuple[str, int], Topic]]:
        """Return the partitions with a known leader, by its node id."""
        by_node: dict[int, dict[tuple[str, int], Topic]] = {}
        for topic, partition in chosen:
            known = self._topic(topic)
            if known is not None and 0 <= partition < known.partitions:
                node_id = known.leaders[partition].node_id
                by_node.setdefault(node_id, {})[known.name, partition] = known
            await work.step()
        by_node.pop(UNKNOWN_NODE, None)
        return by_node

    async def _learn_topics(self, own: ClusterQueries, topics: Iterable[bytes | str]) -> None:
        """Request Metadata of unknown and stale topics from the first broker that responds."""
        needed = [each for each in topics if self._is_needed(each)][:TOPICS_AT_ONCE]
        request = about_topics(
            [each for each in needed if isinstance(each, str)], [each for each in needed if isinstance(each, bytes)]
        )
        for node_id in sorted(self._topology.brokers) if needed else ():
            try:
                self._topology.fold(await own.send_request(node_id, ApiKey.METADATA, request), self._now())
            except ProxyError as error:
                self.trouble = str(error)
            else:
                self.trouble = ""
                return

    def _is_needed(self, topic: bytes | str) -> bool:
        known = self._topic(topic)
        return known is None or self._topology.is_stale(known.name)

    async def _receive(self, response: Promise[messages.ListOffsetsResponse]) -> None:
        try:
            topics = (await response).topics
        except ProxyError as error:
            self.trouble = str(error)
            return
        for topic in topics:
            for entry in topic.partitions:
                code = ErrorCode.of(entry.error_code)
                if code == ErrorCode.NONE:
                    self._ends[topic.name, entry.partition_index] = entry.offset
                    continue
                self.trouble = f"{topic.name}-{entry.partition_index}: {error_name(code)}"
                if code in STALE_CODES:
                    self._topology.set_stale(topic.name)


def _parts(partitions: dict[tuple[str, int], Topic]) -> Iterable[dict[tuple[str, int], Topic]]:
    remaining = iter(partitions.items())
    while part := dict(islice(remaining, PARTITIONS_AT_ONCE)):
        yield part


def _request(partitions: dict[tuple[str, int], Topic]) -> messages.ListOffsetsRequest:
    """Build a ListOffsets request for high watermarks, as lag tools use them (KIP-1226)."""
    message = messages.ListOffsetsRequest
    topics: dict[str, messages.ListOffsetsRequest.ListOffsetsTopic] = {}
    for (name, partition), topic in partitions.items():
        entry = message.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=topic.leaders[partition].epoch, timestamp=LATEST
        )
        topics.setdefault(name, message.ListOffsetsTopic(name=name, partitions=[])).partitions.append(entry)
    return message(replica_id=-1, isolation_level=0, topics=list(topics.values()))
