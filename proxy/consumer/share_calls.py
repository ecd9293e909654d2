"""Calls that wait for what becomes of acknowledgements (consumer/share_consumers.md rule 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from proxy.consumer.events import CallDone, ConsumerError
from proxy.consumer.share_acknowledgements import AcknowledgeType
from proxy.consumer.share_holds import AcknowledgementResult
from proxy.consumer.share_session import Acknowledgements, ShareSession
from proxy.wire.values import TopicPartition

Offsets = Mapping[TopicPartition, set[int]]


@dataclass(slots=True)
class _Call:
    call_id: int
    waiting: dict[TopicPartition, set[int]]
    """Offsets without an answer."""
    results: dict[TopicPartition, ConsumerError | None] = field(default_factory=dict)


class ShareCalls:
    """Of one share consumer."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def add(self, call_id: int, sessions: Iterable[ShareSession], only: Offsets | None = None) -> None:
        """Wait for all that is due or under way in these sessions, or only for these offsets; it is urgent from now."""
        waiting: dict[TopicPartition, set[int]] = {}
        for session in sessions:
            session.is_urgent = _collect(waiting, session.due, only) or session.is_urgent
            _collect(waiting, session.under_way, only)
        self._calls.append(_Call(call_id, waiting))

    def answered(self, result: AcknowledgementResult) -> None:
        """Something became of acknowledgements."""
        for call in self._calls:
            waiting = call.waiting.get(result.partition)
            if waiting is None or not (waiting & result.said.keys()):
                continue
            waiting.difference_update(result.said)
            call.results[result.partition] = call.results.get(result.partition) or result.error
            if not waiting:
                del call.waiting[result.partition]

    def finished(self) -> list[CallDone]:
        """Those that wait for nothing any more; the value is partition -> why it was refused, or None."""
        done = [call for call in self._calls if not call.waiting]
        self._calls = [call for call in self._calls if call.waiting]
        return [CallDone(call_id=call.call_id, value=call.results) for call in done]


def _collect(waiting: dict[TopicPartition, set[int]], said: Acknowledgements, only: Offsets | None) -> bool:
    """Add the offsets that are waited for. Returns: whether there are any."""
    found = False
    for partition, offsets in said.items():
        applied = {each for each, kind in offsets.items() if kind is not AcknowledgeType.GAP}
        wanted = applied if only is None else applied & only.get(partition, set())
        if wanted:
            waiting.setdefault(partition, set()).update(wanted)
            found = True
    return found
