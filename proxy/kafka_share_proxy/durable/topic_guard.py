"""Settings of an internal topic, watched while the topic is in use (durable/README.md rules 35 to 37).

When brokers begin to delete confirmed records, `on_unsafe` stops service. Once the settings are corrected,
`on_corrected` resumes it from memory, or `on_deleted` reports that records were deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Protocol

import trio

from kafka_share_proxy.brokers.internal_topics import TopicLeaders, TopicUnsafe
from kafka_share_proxy.brokers.topic_settings import TopicSettings
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.replay import ReplaySource
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble

CHECK_S = 10.0
"""Seconds between two requests. Brokers delete old segments every 5 minutes (`log.retention.check.interval.ms`)."""
RISK_REMIND_S = 3600.0
"""Seconds between two log lines about the same risk."""


class WatchedTopic(Protocol):
    """Source of the settings: `state_topic.StateTopic`, `internal_topics.InternalTopic`."""

    async def settings(self, view: TopicLeaders) -> TopicSettings: ...


class TopicGuard:
    """Verdict on the settings of one topic."""

    def __init__(
        self,
        topic: str,
        notes: Notes,
        clock: Callable[[], float] = trio.current_time,
        *,
        on_unsafe: Callable[[], None] = lambda: None,
        on_corrected: Callable[[], None] = lambda: None,
        on_deleted: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """
        Args:
            topic: name of the topic.
            notes: receiver of log events.
            clock: time in seconds.
            on_unsafe: called after each lookup while the settings are unsafe.
            on_corrected: called when the settings are corrected and no partition has lost records.
            on_deleted: called when the settings are corrected and brokers have deleted records.
        """
        self.topic = topic
        self.unsafe = ""
        self.settings: TopicSettings | None = None
        """None before the first lookup."""
        self.risks: dict[str, str] = {}
        self.log_starts: dict[int, int] = {}
        """First offset of each log when it was loaded."""
        self._on_unsafe = on_unsafe
        self._on_corrected = on_corrected
        self._on_deleted = on_deleted
        self._is_to_resume = False
        self._notes = notes
        self._clock = clock
        self._judged_at = -inf
        self._danger = LastingTrouble(notes, "state-topic-unsafe", "state-topic-safe", clock=clock, topic=topic)
        self._reported: dict[str, LastingTrouble] = {}

    @property
    def is_due(self) -> bool:
        return self._clock() - self._judged_at >= CHECK_S

    @property
    def is_safe_now(self) -> bool:
        """True if the last lookup, which is repeated every CHECK_S, took place in time and found no unsafe setting."""
        return not self.unsafe and self._clock() - self._judged_at < 2 * CHECK_S

    def judge(self, settings: TopicSettings) -> None:
        """Update the verdict, which unknown settings leave as it was."""
        self._judged_at, self.settings = self._clock(), settings
        if not settings.unknown:
            self.unsafe = settings.unsafe
        if self.unsafe:
            self._danger.happened(self.unsafe)
        else:
            self._danger.ended()
        self.risks = settings.risks()
        for name in self.risks.keys() - self._reported.keys():
            self._reported[name] = LastingTrouble(
                self._notes,
                "state-topic-at-risk",
                "state-topic-risk-ended",
                clock=self._clock,
                remind_s=RISK_REMIND_S,
                topic=self.topic,
                risk=name,
            )
        for name, trouble in self._reported.items():
            if name in self.risks:
                trouble.happened(self.risks[name])
            else:
                trouble.ended()

    async def require_safe(self, topic: WatchedTopic, view: TopicLeaders) -> TopicSettings:
        """Look up the settings, and return them. Raises TopicUnsafe, UpstreamLost, AuthenticationFailed."""
        settings = await topic.settings(view)
        self.judge(settings)
        if self.unsafe:
            raise TopicUnsafe(self.unsafe)
        return settings

    async def check(
        self, topic: WatchedTopic, view: TopicLeaders, served: Collection[int], source: ReplaySource
    ) -> None:
        """Request the settings if that is due. Raises ProxyError. A proxy that serves no partition only reports."""
        if not self.is_due:
            return
        self.judge(await topic.settings(view))
        if not served:
            self._is_to_resume = False
        elif self.unsafe:
            self.hold_back()
        elif self._is_to_resume:
            await self._resume(served, source)

    async def _resume(self, served: Collection[int], source: ReplaySource) -> None:
        starts = await replay.starts(served, source)
        deleted = [each for each in served if starts.get(each, 0) > self.log_starts.get(each, 0)]
        self._is_to_resume = False
        self.log_starts.update(starts)
        if deleted:
            self._on_deleted(f"brokers have deleted records of {len(deleted)} partitions of topic {self.topic}")
        else:
            self._on_corrected()

    def hold_back(self) -> None:
        """Stop service until the settings are corrected."""
        self._is_to_resume = True
        self._on_unsafe()
