"""Names of topics that audit events know by id: what the proxy has seen of the cluster, else what the brokers say.

A proxy that only passes share groups on has seen no topic, and the edge of a fleet not those of other proxies' groups.
They are asked for under the proxy's own identity; a topic that it may not describe is told by its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from proxy.brokers.own_client import OwnClient
from proxy.brokers.questions import about_topics
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, ProxyError

NAMES_MAX = 10_000
"""Topics that are remembered; past it all are asked for again."""
ASKED_MAX = 100
"""Topics of one question; the others are told by id until the next."""
ASK_S = 3.0
"""How long events wait for an answer."""
RETRY_S = 60.0
"""A topic without a name is asked for again after this."""


class AuditedTopicNames:
    """What events call topics."""

    def __init__(
        self,
        seen: Callable[[bytes], str | None],
        client: OwnClient,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        """`seen`: the name of a topic that the proxy knows; `client`: closed with `aclose`; `now`: seconds."""
        self._seen = seen
        self._client = client
        self._now = now
        self._told: dict[bytes, str] = {}
        self._asked_at: dict[bytes, float] = {}

    def name(self, topic_id: bytes) -> str:
        """Its name, or the id in hexadecimal."""
        return self._seen(topic_id) or self._told.get(topic_id) or topic_id.hex()

    def unknown(self, topic_ids: Iterable[bytes]) -> list[bytes]:
        """Those that `learn` would ask for: not known, and not asked for lately."""
        now = self._now()
        return [
            topic_id
            for topic_id in topic_ids
            if self._seen(topic_id) is None
            and topic_id not in self._told
            and now - self._asked_at.get(topic_id, -RETRY_S) >= RETRY_S
        ]

    async def learn(self, topic_ids: Iterable[bytes]) -> None:
        """Ask for those that are not known, if they were not asked for lately."""
        unknown = self.unknown(topic_ids)[:ASKED_MAX]
        if not unknown:
            return
        if len(self._told) + len(self._asked_at) > NAMES_MAX:
            self._told.clear()
            self._asked_at.clear()
        self._asked_at |= dict.fromkeys(unknown, self._now())
        with trio.move_on_after(ASK_S) as waiting:
            await self._ask(unknown)
        if waiting.cancelled_caught:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connection that is kept, if any."""
        await self._client.aclose()

    async def _ask(self, topic_ids: list[bytes]) -> None:
        try:
            answer, _ = await self._client.ask(ApiKey.METADATA, about_topics(ids=topic_ids))
        except ProxyError:
            return
        for topic in answer.topics or ():
            if topic.error_code == ErrorCode.NONE and topic.name:
                self._told[bytes(topic.topic_id)] = topic.name
                self._asked_at.pop(bytes(topic.topic_id), None)
