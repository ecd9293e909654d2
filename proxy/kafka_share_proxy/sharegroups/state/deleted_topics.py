"""Removal of share partitions of deleted topics, in memory and in the stored state.

A broker does this when its metadata loses the topic (ShareCoordinatorService). The proxy polls Metadata by topic id
under its own identity, in rotation over all topics with share partitions. A topic counts as deleted only if every
broker returns UNKNOWN_TOPIC_ID (100) for it in two successive checks: one broker that lags or does not respond removes
nothing. A topic that the proxy may not see is returned with error 29 and stays. Topic ids are never reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.loop.recurring import RoundRobin, check_every
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_writes import reported_in_time
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

CHECK_EVERY_S = 60.0
"""Seconds between two checks."""
TOPICS_AT_ONCE = 500
"""Maximum number of topics per check, in addition to those that the last check did not find."""


class DeletedTopics:
    """Periodic checks for deleted topics."""

    def __init__(self, services: ShareServices) -> None:
        self._services = services
        self._rotation = RoundRobin(b"")
        """`suspected` contains the topics that no broker knew in the last check."""

    def start(self) -> None:
        check_every(self._services.timers, CHECK_EVERY_S, self.check)

    async def check(self) -> None:
        """Check some of the topics with share partitions, and drop those that two checks did not find."""
        held = {topic_id for _, topic_id in self._services.coordinator.topics()}
        topic_ids = self._rotation.next(held, TOPICS_AT_ONCE)
        try:
            unknown = await self._unknown_everywhere(topic_ids)
        except ProxyError as error:
            self._services.notes("share-topics-not-checked", reason=str(error))
            return
        deleted, self._rotation.suspected = unknown & self._rotation.suspected, unknown - self._rotation.suspected
        if deleted:
            await self._drop(deleted)

    async def _unknown_everywhere(self, topic_ids: Sequence[bytes]) -> frozenset[bytes]:
        """Return the topics that no broker knows. Raises ProxyError if a broker does not respond."""
        own, unknown = self._services.own, frozenset(topic_ids)
        brokers = sorted(self._services.topology.brokers)
        if own is None or not brokers:
            return frozenset()
        for node_id in brokers:
            if not unknown:
                break
            response = await own.send_request(node_id, ApiKey.METADATA, about_topics(ids=sorted(unknown)))
            unknown &= {topic.topic_id for topic in response.topics if topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID}
        return unknown

    async def _drop(self, deleted: Iterable[bytes]) -> None:
        services, topics = self._services, frozenset(deleted)
        groups = sorted({group_id for group_id, topic_id in services.coordinator.topics() if topic_id in topics})
        dropped = 0
        for group_id in groups:
            keys = [key for key in services.coordinator.keys_of(group_id) if key.topic_id in topics]
            outcome = await reported_in_time(services.timers, services.writes.remove(keys), keys)
            dropped += sum(code == ErrorCode.NONE for code in outcome.values())
            self._rotation.suspected |= {key.topic_id for key, code in outcome.items() if code != ErrorCode.NONE}
        if dropped:
            services.notes("share-topics-deleted", topics=len(topics), groups=len(groups), partitions=dropped)
