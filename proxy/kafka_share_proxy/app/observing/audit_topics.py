"""Names of topics that audit events have by id, from the proxy's view of the cluster, else from the brokers.

A proxy that only forwards share groups has seen no topic, and a fleet proxy has not seen the topics of groups on other
proxies. A topic that the proxy's own identity may not describe is shown by its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

NAMES_MAX = 10_000
"""Maximum number of topics remembered. Beyond it, all are looked up again."""
QUERIED_MAX = 100
"""Maximum number of topics in one lookup. The others are shown by id until the next one."""
QUERY_S = 3.0
"""Seconds that events wait for a lookup."""
RETRY_S = 60.0
"""Seconds until a topic without a name is looked up again."""


class AuditedTopicNames:
    """Resolver of topic ids to names."""

    def __init__(
        self,
        known_name: Callable[[bytes], str | None],
        client: ClusterClient,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        """`known_name`: name of a topic; `client`: closed by `aclose`; `now`: seconds."""
        self._known_name = known_name
        self._client = client
        self._now = now
        self._names: dict[bytes, str] = {}
        self._queried_at: dict[bytes, float] = {}

    def name(self, topic_id: bytes) -> str:
        """Return the topic's name, or its id in hexadecimal."""
        return self._known_name(topic_id) or self._names.get(topic_id) or topic_id.hex()

    def unknown(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        """Return the topic ids to look up: without a name, and not queried within RETRY_S."""
        now = self._now()
        return [
            topic_id
            for topic_id in topic_ids
            if self._known_name(topic_id) is None
            and topic_id not in self._names
            and now - self._queried_at.get(topic_id, -RETRY_S) >= RETRY_S
        ]

    async def learn(self, topic_ids: Iterable[bytes]) -> None:
        """Look up the names of unknown topics, at most QUERIED_MAX, for at most QUERY_S."""
        unknown = self.unknown(topic_ids)[:QUERIED_MAX]
        if not unknown:
            return
        if len(self._names) + len(self._queried_at) > NAMES_MAX:
            self._names.clear()
            self._queried_at.clear()
        self._queried_at |= dict.fromkeys(unknown, self._now())
        with trio.move_on_after(QUERY_S) as waiting:
            await self._query(unknown)
        if waiting.cancelled_caught:
            await self.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _query(self, topic_ids: list[bytes]) -> None:
        try:
            response, _ = await self._client.send_request(ApiKey.METADATA, about_topics(ids=topic_ids))
        except ProxyError:
            return
        for topic in response.topics or ():
            if topic.error_code == ErrorCode.NONE and topic.name:
                self._names[bytes(topic.topic_id)] = topic.name
                self._queried_at.pop(bytes(topic.topic_id), None)
