"""Facts about the topic of a state that a takeover needs: safe settings, leaders, coordinators and sizes.

They are looked up before this proxy owns a partition, and then kept up to date, so that a takeover need not wait for
them (durable/README.md rule 49).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kafka_share_proxy.brokers.topic_settings import TopicSettings
from kafka_share_proxy.durable.described_state import DescribedState, HeldState
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.leader_watch import LeaderWatch
from kafka_share_proxy.durable.state_host import BrokerAccess
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.durable.topic_guard import TopicGuard
from kafka_share_proxy.wire.errors import ProxyError

RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
"""Shortest and longest delay in seconds after a failed lookup."""
FAILED_S = 1.0
"""Shortest delay in seconds after an error."""
PREPARING_S = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Delays in seconds before the lookups of `prepare`, together as long as a new group of brokers waits for more members
(`group.initial.rebalance.delay.ms`).
"""


class PreparedTopic:
    """Knowledge of one topic. The journal and the records in memory get its sizes."""

    def __init__(
        self,
        state: DescribedState[Any],
        access: BrokerAccess,
        leaders: LeaderWatch,
        guard: TopicGuard,
        journal: TopicJournal[Any],
        held: HeldState,
    ) -> None:
        self._state = state
        self._access = access
        self._leaders = leaders
        self._guard = guard
        self._journal = journal
        self._held = held
        self._is_learned = False
        self._sizes_of: TopicSettings | None = None
        """Settings from which the sizes were read."""

    def open(self) -> StateTopic:
        """Return the topic, for one task, which closes it."""
        return StateTopic(self._access.client(), self._state)

    @property
    def is_known(self) -> bool:
        """True if every partition has a leader, and the settings keep what is stored, by the last lookup."""
        return self._is_learned and self._leaders.view.is_whole and self._guard.is_safe_now

    def forget(self) -> None:
        """Look everything up before the next takeover: one has failed, or the topic is another one."""
        self._is_learned = False

    async def prepare(self) -> None:
        """Create the topic or look it up, until it and its coordinators are known. Errors are left to `require`."""
        topic = self.open()
        try:
            for delay in PREPARING_S:
                await trio.sleep(delay)
                if not self.is_known:
                    await self._query(topic)
                elif self._journal.coordinators:
                    return
                self._leaders.check_soon()  # FindCoordinator makes the brokers create __transaction_state
        except ProxyError:
            return
        finally:
            await topic.aclose()

    async def require(self, on_trouble: Callable[[ProxyError], None]) -> None:
        """Return when `is_known`. `on_trouble` is called with each error."""
        topic, delay = self.open(), RETRY_MIN_S
        try:
            while not self.is_known:
                try:
                    await self._query(topic)
                    if self._is_learned:
                        self._leaders.check_soon()
                        return
                except ProxyError as error:
                    on_trouble(error)
                    delay = max(delay, FAILED_S)
                await trio.sleep(delay)
                delay = min(2 * delay, RETRY_MAX_S)
        finally:
            await topic.aclose()

    async def _query(self, topic: StateTopic) -> None:
        """Raises TopicUnsafe, UpstreamLost, AuthenticationFailed."""
        view = await topic.leaders()
        if view is None:
            if await topic.create():
                self._access.notes("state-topic-created", topic=self._state.topic)
        elif view.is_whole:
            self._learn_sizes(topic, await self._guard.require_safe(topic, view))
            self._leaders.learn(view)
            self._is_learned = True

    def _learn_sizes(self, topic: StateTopic, settings: TopicSettings) -> None:
        self._sizes_of = settings
        size = topic.message_bytes(settings, self._access.notes)
        self._journal.limit_batches(size)
        self._held.limit_records(size)

    def follow_sizes(self, topic: StateTopic) -> None:
        """Read the sizes again if settings have changed: `max.message.bytes` is one of them."""
        settings = self._guard.settings
        if self._is_learned and settings is not None and settings != self._sizes_of:
            self._learn_sizes(topic, settings)

    async def find_coordinators(self, topic: StateTopic) -> None:
        """Look up coordinators that the journal does not know. Raises TopicRefused, UpstreamLost, AuthenticationFailed.

        At first it also opens the journal's connections, which a takeover would otherwise wait for.
        """
        known = self._journal.coordinators
        missing = {self._state.transactional_id(p): p for p in self._state.all if p not in known}
        if not missing:
            return
        is_first = not known
        for name, node_id in (await topic.coordinators(missing)).items():
            known[missing[name]] = node_id
        if is_first:
            self._journal.connect()
