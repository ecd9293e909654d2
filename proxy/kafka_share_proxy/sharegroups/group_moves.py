"""Moves of share groups between here and the brokers: what both directions have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.sharegroups.native_group import NativeGroup
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.errors import ProxyError

CHECKING, OBSERVING, CLOSING, MOVING, REFUSED = "checking", "observing", "closing", "moving", "refused"
HANDED_OVER, TAKEN_BACK = "handed over", "taken back"

WAIT_S_MAX = 900.0
"""Maximum seconds that a move waits for unsettled records."""
CHECK_EVERY_S = 0.05
"""Seconds between two checks for unsettled records."""
NAMED_MAX = 20
"""Maximum number of partitions or members in the text of a refusal."""
KEPT_MAX = 1_000
"""Maximum number of ended moves whose outcome is kept."""

Window = dict[str, Any]
"""Partition with records that are not settled: topic, partition, start_offset, end_offset."""


class Move(ABC):
    """One move of one group."""

    done: str
    """Phase of a move that succeeded."""
    kind: str
    """Kind of its audit event, and its label in metrics."""

    def __init__(self, services: ShareServices, group_id: str, *, wait_s: float, force: bool) -> None:
        self.phase = CHECKING
        self.reason = ""
        self.delivered_again: list[Window] = []
        """Partitions whose records are delivered again."""
        self.left_out: list[str] = []
        """Settings that the new side does not have."""
        self.remark = ""
        """Text about the remaining work for the operator, empty if there is none."""
        self.held_back_s = 0.0
        """Time for which new records were held back."""
        self.partitions = 0
        """Number of share partitions that were moved."""
        self._services, self._group_id, self._native = services, group_id, NativeGroup(services, group_id)
        self._wait_s, self._force = min(wait_s, WAIT_S_MAX), force
        self._held_back_since: float | None = None

    @property
    def ended(self) -> bool:
        return self.phase in (self.done, REFUSED)

    def view(self) -> dict[str, Any]:
        return {
            "group": self._group_id,
            "phase": self.phase,
            "reason": self.reason,
            "held_back_s": round(self.held_back_s, 3),
            "delivered_again": self.delivered_again,
            "settings_left_out": self.left_out,
            "remark": self.remark,
        }

    async def run(self) -> None:
        """Move the group, or set the reason why it stays. Never fails."""
        services = self._services
        services.notes("share-group-move", group=self._group_id, to=self.done, force=self._force)
        try:
            await self._move()
            self.phase = self.done
        except (ProxyError, JournalRefused) as error:
            self.phase, self.reason = REFUSED, str(error)
        finally:
            if self._held_back_since is not None:
                self.held_back_s = services.timers.now() - self._held_back_since
            self._end()
        if self.phase == REFUSED:
            services.figures.moves[REFUSED] += 1
            services.notes("share-group-stays", group=self._group_id, reason=self.reason)
            return
        services.figures.moves[self.kind] += 1
        services.figures.held_back_s.observe(self.held_back_s)
        services.notes(
            "share-group-moved",
            group=self._group_id,
            to=self.done,
            seconds=round(self.held_back_s, 3),
            **({"remark": self.remark} if self.remark else {}),
        )
        if services.audit is not None:
            records_again = sum(window["end_offset"] - window["start_offset"] + 1 for window in self.delivered_again)
            services.audit.moved(self.kind, self._group_id, self.partitions, self.held_back_s, records_again)

    def _hold_back(self) -> None:
        """Begin to count the time for which new records are held back."""
        self.phase, self._held_back_since = CLOSING, self._services.timers.now()

    @abstractmethod
    async def _move(self) -> None:
        """Raises ProxyError or JournalRefused: the group stays where it is."""

    @abstractmethod
    def _end(self) -> None:
        """End the hold, after success and after a refusal."""


def names_of(windows: list[Window]) -> str:
    """Return the first windows as text."""
    texts = [
        f"{each['topic']}-{each['partition']} offsets {each['start_offset']}-{each['end_offset']}" for each in windows
    ]
    return some(texts)


def some(texts: list[str]) -> str:
    omitted_text = f" and {len(texts) - NAMED_MAX} more" if len(texts) > NAMED_MAX else ""
    return ", ".join(texts[:NAMED_MAX]) + omitted_text
