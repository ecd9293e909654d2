"""Share partitions of deleted topics are dropped, in memory and in what is stored.

A broker does it when its metadata loses the topic (ShareCoordinatorService: tombstones for every key of that topic id).
Here nobody tells, so the proxy asks, under its own identity: Metadata by topic id, in turn for everything that is held.
Gone is only what every broker that the cluster names does not know (100), in two looks: one broker that has not caught
up, or does not answer, takes nothing from anybody. A topic hidden from the proxy is answered 29 and stays. Ids are
never used again, so what is gone stays gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.brokers.questions import about_topics
from proxy.loop.recurring import InTurn, look_every
from proxy.sharegroups.services import ShareServices
from proxy.sharegroups.state_writes import told_in_time
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, ProxyError

LOOK_EVERY_S = 60.0
"""Between two looks."""
TOPICS_AT_ONCE = 500
"""Topics asked about in one look, beside those that the last one did not find."""


class DeletedTopics:
    """Looks for them for as long as the process lives."""

    def __init__(self, services: ShareServices) -> None:
        self._services = services
        self._turns = InTurn(b"")
        """Suspected are those that no broker knew in the last look."""

    def start(self) -> None:
        """Look now and then from here on."""
        look_every(self._services.timers, LOOK_EVERY_S, self.look)

    async def look(self) -> None:
        """Ask about some of the topics that are held, and drop what was not found twice."""
        held = {topic_id for _, topic_id in self._services.coordinator.topics()}
        wanted = self._turns.next(held, TOPICS_AT_ONCE)
        try:
            unknown = await self._unknown_everywhere(wanted)
        except ProxyError as error:
            self._services.notes("share-topics-not-checked", reason=str(error))
            return
        gone, self._turns.suspected = unknown & self._turns.suspected, unknown - self._turns.suspected
        if gone:
            await self._drop(gone)

    async def _unknown_everywhere(self, topic_ids: Sequence[bytes]) -> frozenset[bytes]:
        """Those that no broker knows. Raises ProxyError when one of them does not answer."""
        own, left = self._services.own, frozenset(topic_ids)
        brokers = sorted(self._services.topology.brokers)
        if own is None or not brokers:
            return frozenset()
        for node_id in brokers:
            if not left:
                break
            answer = await own.ask(node_id, ApiKey.METADATA, about_topics(ids=sorted(left)))
            left &= {topic.topic_id for topic in answer.topics if topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID}
        return left

    async def _drop(self, gone: Iterable[bytes]) -> None:
        services, topics = self._services, frozenset(gone)
        groups = sorted({group_id for group_id, topic_id in services.coordinator.topics() if topic_id in topics})
        dropped = 0
        for group_id in groups:
            keys = [key for key in services.coordinator.keys_of(group_id) if key.topic_id in topics]
            outcome = await told_in_time(services.timers, services.writes.remove(keys), keys)
            dropped += sum(code == ErrorCode.NONE for code in outcome.values())
            self._turns.suspected |= {key.topic_id for key, code in outcome.items() if code != ErrorCode.NONE}
        if dropped:
            services.notes("share-topics-deleted", topics=len(topics), groups=len(groups), partitions=dropped)
