"""Calls that wait for the results of acknowledgements (consumer/share_consumers.md rule 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_share_proxy.consumer.events import CallDone, ConsumerError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult
from kafka_share_proxy.consumer.share.share_session import Acknowledgements, ShareSession
from kafka_share_proxy.wire.values import TopicPartition

Offsets = Mapping[TopicPartition, set[int]]


@dataclass(slots=True)
class _Call:
    """A waiting call, with the offsets that have no result yet."""

    call_id: int
    waiting: dict[TopicPartition, set[int]]
    results: dict[TopicPartition, ConsumerError | None] = field(default_factory=dict)


class ShareCalls:
    """Waiting calls of one share consumer."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def add(self, call_id: int, sessions: Iterable[ShareSession], only: Offsets | None = None) -> None:
        """Add a call, and make the acknowledgements urgent that it waits for. `only`: offsets to wait for."""
        waiting: dict[TopicPartition, set[int]] = {}
        for session in sessions:
            session.is_urgent = _collect(waiting, session.due, only) or session.is_urgent
            _collect(waiting, session.in_flight, only)
        self._calls.append(_Call(call_id, waiting))

    def give_up(self, call_id: int) -> None:
        """Forget a call. The acknowledgements are sent all the same."""
        self._calls = [call for call in self._calls if call.call_id != call_id]

    def on_result(self, result: AcknowledgementResult) -> None:
        for call in self._calls:
            waiting = call.waiting.get(result.partition)
            if waiting is None or not (waiting & result.types.keys()):
                continue
            waiting.difference_update(result.types)
            call.results[result.partition] = call.results.get(result.partition) or result.error
            if not waiting:
                del call.waiting[result.partition]

    def finished(self) -> list[CallDone]:
        """Remove and return the finished calls. Their value is partition -> error of the broker, or None."""
        done = [call for call in self._calls if not call.waiting]
        self._calls = [call for call in self._calls if call.waiting]
        return [CallDone(call_id=call.call_id, value=call.results) for call in done]


def _collect(waiting: dict[TopicPartition, set[int]], acks: Acknowledgements, only: Offsets | None) -> bool:
    is_any = False
    for partition, offsets in acks.items():
        applied = {each for each, kind in offsets.items() if kind is not AcknowledgeType.GAP}
        awaited = applied if only is None else applied & only.get(partition, set())
        if awaited:
            waiting.setdefault(partition, set()).update(awaited)
            is_any = True
    return is_any
