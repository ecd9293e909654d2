"""Writer of dead letters in the background (sharegroups/README.md rules 89-92).

How it works: a share partition reports that records wait (`due`). All due share partitions of one state partition whose
groups have the same topic are a `_Queue`. One queue of a state partition is written at a time, at most one transaction
each GATHER_S: the records are chosen, copied if the group wants it, and written together with the snapshots that
archive them. A refusal lets them wait again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from kafka_share_proxy.brokers.record_lookup import RecordLookup
from kafka_share_proxy.durable.interfaces import JournalRefused, OutsideRecords
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.loop.interfaces import Notes, Timer, Timers
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.sharegroups.counters import ShareFigures
from kafka_share_proxy.sharegroups.dead_letters.letter_records import LetterSource, by_partition, letter_of
from kafka_share_proxy.sharegroups.dead_letters.pace import GATHER_S, LetterPace, TransactionTime
from kafka_share_proxy.sharegroups.dead_letters.target_topics import NotWritable, TargetTopic, TargetTopics
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetterWrite, undo
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition
from kafka_share_proxy.sharegroups.model.queue_settings import DeadLetterTarget
from kafka_share_proxy.sharegroups.state.state_writes import ShareWrites
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.records.records import Record

COPIES_S = 5.0
"""Maximum seconds in which reads of the records of one transaction begin."""
TRANSACTION_BYTES_MAX = 1 << 20
"""Maximum bytes of the dead letters of one transaction. A single one may be larger."""

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_NOT_SERVED = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})
"""The state partition is being loaded, or is no longer owned. The topic for dead letters has no part in it."""


@dataclass(slots=True)
class _Queue:
    """Due share partitions of one state partition whose groups have the same topic."""

    pace: LetterPace
    due: dict[ShareKey, None] = field(default_factory=dict)
    without_copies: bool = False
    """True if the next transaction has headers only, because one record is too large with key and value."""
    unreadable: dict[ShareKey, LetterPace] = field(default_factory=dict)
    """Due share partitions whose records could not be read."""

    def next_at(self) -> float:
        """Return the earliest time of the next transaction."""
        if len(self.unreadable) < len(self.due):
            return self.pace.retry_at
        return max(self.pace.retry_at, min((pace.retry_at for pace in self.unreadable.values()), default=0.0))


@dataclass(slots=True)
class _Lane:
    """Queues of one state partition, by topic. The one written last is the last."""

    queues: dict[str, _Queue] = field(default_factory=dict)
    is_busy: bool = False
    time: TransactionTime = field(default_factory=TransactionTime)
    free_at: float = 0.0
    timer: Timer | None = None
    timer_at: float = inf


class _Source(NamedTuple):
    """Source of the dead letters of one share partition."""

    topic: str
    records: Mapping[int, Record]
    """Records to copy, by offset."""


class _PartitionWrite(NamedTuple):
    """Records of one share partition that are to be written."""

    key: ShareKey
    target: DeadLetterTarget
    write: DeadLetterWrite


class _TooLarge(Exception):
    """The transaction is too large."""


class DeadLetterWriter:
    """Writes the dead letters of all share groups that are served here."""

    def __init__(
        self,
        coordinator: ShareCoordinator,
        writes: ShareWrites,
        topics: TargetTopics,
        lookup: RecordLookup,
        timers: Timers,
        notes: Notes,
        figures: ShareFigures,
        *,
        copies_headers: bool = False,
    ) -> None:
        """`copies_headers`: copy headers and timestamp with key and value."""
        self._coordinator, self._writes, self._topics, self._lookup = coordinator, writes, topics, lookup
        self._timers, self._notes, self._figures = timers, notes, figures
        self._copies_headers = copies_headers
        self._lanes: defaultdict[int, _Lane] = defaultdict(_Lane)
        self._troubles: dict[str, LastingTrouble] = {}
        self.unwritable: dict[str, str] = {}
        """Reason why a topic cannot be written, by topic."""

    def due(self, key: ShareKey) -> None:
        """Write the dead letters of a share partition soon."""
        target = self._target(key)
        if target is None:
            return
        number = state_partition(key.group_id)
        lane = self._lanes[number]
        if target.topic not in lane.queues:
            lane.queues[target.topic] = _Queue(LetterPace(f"{target.topic} {number}"))
        lane.queues[target.topic].due[key] = None
        self._schedule(number, lane)

    def settings_changed(self, group_id: str) -> None:
        """Write waiting dead letters of a group to its present topic, without waiting for the next retry."""
        for key, share in self._coordinator.loaded_of(group_id):
            if isinstance(share.partition, QueuePartition) and share.partition.dead_letters_waiting():
                target = self._target(key)
                lane = self._lanes[state_partition(group_id)]
                if target is not None and target.topic in lane.queues:
                    lane.queues[target.topic].pace.retry_at = 0.0
                self.due(key)

    def _target(self, key: ShareKey) -> DeadLetterTarget | None:
        queue = self._coordinator.settings(key.group_id).queue
        return None if queue is None else queue.dead_letters

    # Timing

    def _schedule(self, number: int, lane: _Lane) -> None:
        if lane.is_busy or not lane.queues:
            return
        write_at = max(lane.free_at, min(queue.next_at() for queue in lane.queues.values()))
        if lane.timer is not None:
            if lane.timer_at <= write_at:
                return
            lane.timer.cancel()
        lane.timer_at = write_at
        lane.timer = self._timers.call_at(write_at, lambda: self._on_timer(number, lane))

    def _on_timer(self, number: int, lane: _Lane) -> None:
        lane.timer, lane.timer_at = None, inf
        now = self._timers.now()
        topic = next((name for name, queue in lane.queues.items() if queue.next_at() <= now), None)
        if topic is None:
            self._schedule(number, lane)
            return
        queue = lane.queues[topic] = lane.queues.pop(topic)
        lane.is_busy, lane.free_at = True, now + GATHER_S
        written = on_its_own(self._write(topic, queue, lane))

        def on_written() -> None:
            lane.is_busy = False
            if not queue.due:
                del lane.queues[topic]
                self._recovered(topic)
            self._schedule(number, lane)
            written.result()

        written.on_settled(on_written)

    # Writing

    async def _write(self, topic: str, queue: _Queue, lane: _Lane) -> None:
        """Write one transaction."""
        writes: list[_PartitionWrite] = []
        self._prune(topic, queue)
        if not queue.due:
            return
        try:
            target = await self._topics.of(topic)
            writes = self._choose_records(topic, queue)
            sources = await self._sources(topic, queue, writes)
            if not writes:
                return
            outside = self._records(target, writes, sources)
            self._count_requests(writes)
            started_at = self._timers.now()
            is_full = sum(len(each.records) for each in outside) >= queue.pace.records_max
            await self._writes.write_letters([(each.key, each.write) for each in writes], outside)
            lane.free_at = lane.time.next_at(started_at, self._timers.now(), is_full=is_full)
        except _TooLarge:
            self._undo(writes)
            self._shrink(topic, queue)
        except JournalRefused as refusal:
            self._undo(writes)
            self._refused(topic, queue, refusal, writes)
        except ProxyError as error:
            self._undo(writes)
            self._fail_topic(topic, queue, str(error), writes)
        else:
            self._succeeded(topic, queue, writes)

    def _prune(self, topic: str, queue: _Queue) -> None:
        """Remove share partitions whose groups have another topic now, or none, or are no longer served here."""
        for key in list(queue.due):
            target = self._target(key)
            if target is None or target.topic != topic:
                del queue.due[key]
                queue.unreadable.pop(key, None)
                self.due(key)

    def _choose_records(self, topic: str, queue: _Queue) -> list[_PartitionWrite]:
        """Mark the next waiting records. Share partitions without any are removed from the queue."""
        self._prune(topic, queue)
        writes: list[_PartitionWrite] = []
        remaining = queue.pace.records_max
        for key in list(queue.due):
            if remaining <= 0:
                break
            if key in queue.unreadable and queue.unreadable[key].retry_at > self._timers.now():
                continue
            target, share = self._target(key), self._coordinator.share(key)
            del queue.due[key]
            queued = None if share is None else share.partition
            write = queued.decide_dead_letters(remaining) if isinstance(queued, QueuePartition) else None
            if write is None or target is None:
                queue.unreadable.pop(key, None)
            else:
                queue.due[key] = None  # after the others: it may have more
                writes.append(_PartitionWrite(key, target, write))
                remaining -= write.size
        return writes

    async def _sources(self, topic: str, queue: _Queue, writes: list[_PartitionWrite]) -> dict[ShareKey, _Source]:
        """Return names of source topics, and the records to copy.

        Share partitions that cannot be read are removed and wait again, as do records that were not read in time.
        """
        sources: dict[ShareKey, _Source] = {}
        deadline = self._timers.now() + COPIES_S
        for partition_write in list(writes):
            try:
                sources[partition_write.key] = await self._source(queue, partition_write, writes, deadline)
            except ProxyError as error:
                self._remove(partition_write, writes)
                self._unreadable(topic, queue, partition_write, str(error))
            else:
                queue.unreadable.pop(partition_write.key, None)
        return sources

    async def _source(
        self, queue: _Queue, partition_write: _PartitionWrite, writes: list[_PartitionWrite], deadline: float
    ) -> _Source:
        name = await self._lookup.name_of(partition_write.key.topic_id)
        if not partition_write.target.copies_records or queue.without_copies:
            return _Source(name, {})
        offsets = [letter.offset for letter in partition_write.write.letters()]
        originals = await self._lookup.read(
            partition_write.key.topic_id, partition_write.key.partition, offsets, deadline
        )
        if offsets[-1] >= originals.end:
            self._shorten(partition_write, writes, originals.end)
        return _Source(name, originals.records)

    def _remove(self, partition_write: _PartitionWrite, writes: list[_PartitionWrite]) -> None:
        self._undo([partition_write])
        writes.remove(partition_write)

    def _shorten(self, partition_write: _PartitionWrite, writes: list[_PartitionWrite], end: int) -> None:
        """Choose only the records before an offset."""
        kept_offsets = [letter.offset for letter in partition_write.write.letters() if letter.offset < end]
        self._remove(partition_write, writes)
        share = self._coordinator.share(partition_write.key)
        if not kept_offsets or share is None or not isinstance(share.partition, QueuePartition):
            return
        write = share.partition.decide_dead_letters(len(kept_offsets))
        if write is None:
            return
        writes.append(partition_write._replace(write=write))
        if [letter.offset for letter in write.letters()] != kept_offsets:  # others failed meanwhile
            self._remove(writes[-1], writes)

    def _records(
        self, target: TargetTopic, writes: list[_PartitionWrite], sources: Mapping[ShareKey, _Source]
    ) -> list[OutsideRecords]:
        """Return the dead letters. Raises _TooLarge or NotWritable."""
        letters: list[tuple[int, Record]] = []
        now_ms = self._timers.wall_ms()
        for key, _, write in writes:
            name, originals = sources[key]
            source = LetterSource(key.group_id, name, key.partition)
            letters += [
                (
                    key.partition,
                    letter_of(
                        source, each, originals.get(each.offset), now_ms=now_ms, copies_headers=self._copies_headers
                    ),
                )
                for each in write.letters()
            ]
        outside = by_partition(target.name, target.partitions, letters)
        sizes = [each.size for each in outside]
        if max(sizes) > target.batch_bytes or (sum(sizes) > TRANSACTION_BYTES_MAX and len(letters) > 1):
            if len(letters) == 1 and not any(each.records for each in sources.values()):
                raise NotWritable(
                    f"a dead letter of {sizes[0]} bytes is larger than max.message.bytes of topic {target.name} "
                    f"({target.batch_bytes})"
                )
            raise _TooLarge
        return outside

    # Outcomes

    def _undo(self, writes: Iterable[_PartitionWrite]) -> None:
        for key, _, write in writes:
            share = self._coordinator.share(key)
            if share is not None:
                undo(write, share.partition)

    def _shrink(self, topic: str, queue: _Queue) -> None:
        """Write fewer records in one transaction, or a single one without key and value."""
        if queue.pace.shrink():
            return
        if queue.without_copies:
            self._fail_topic(topic, queue, "a dead letter is too large for the topic, even without key and value", ())
            return
        queue.without_copies = True
        self._notes("dead-letter-not-copied", topic=topic, reason="the record is too large for the topic")

    def _refused(self, topic: str, queue: _Queue, refusal: JournalRefused, writes: list[_PartitionWrite]) -> None:
        if refusal.code == ErrorCode.FENCED_STATE_EPOCH:
            return  # the share partition changed meanwhile
        if refusal.code in _NOT_SERVED:
            queue.pace.failed(self._timers.now())
            return
        self._count_failures(writes)
        if refusal.code in _TOO_LARGE:
            self._shrink(topic, queue)
            return
        self._fail_topic(topic, queue, f"{refusal.code.name}: {refusal}", ())

    def _fail_topic(self, topic: str, queue: _Queue, reason: str, writes: Iterable[_PartitionWrite]) -> None:
        """Report why a topic cannot be written, and retry later."""
        self._count_failures(writes)
        self._topics.forget(topic)
        queue.pace.failed(self._timers.now())
        self._report(topic, reason)

    def _unreadable(self, topic: str, queue: _Queue, partition_write: _PartitionWrite, reason: str) -> None:
        """Report why records cannot be copied, and retry them later. Other share partitions do not wait for them."""
        self._count_failures([partition_write])
        pace = queue.unreadable.setdefault(partition_write.key, LetterPace(f"{partition_write.key}"))
        pace.failed(self._timers.now())
        self._report(topic, reason)

    def _report(self, topic: str, reason: str) -> None:
        self.unwritable[topic] = reason
        trouble = self._troubles.get(topic)
        if trouble is None:
            events = ("dead-letters-not-written", "dead-letters-written-again")
            trouble = LastingTrouble(self._notes, *events, clock=self._timers.now, topic=topic)
            self._troubles[topic] = trouble
        trouble.happened(reason)

    def _succeeded(self, topic: str, queue: _Queue, writes: list[_PartitionWrite]) -> None:
        queue.pace.succeeded()
        queue.without_copies = False
        if not queue.unreadable:
            self._recovered(topic)
        for key, _, write in writes:
            self._figures.of(key.group_id).dead_letters += write.size

    def _recovered(self, topic: str) -> None:
        self.unwritable.pop(topic, None)
        trouble = self._troubles.pop(topic, None)
        if trouble is not None:
            trouble.ended()

    def _count_requests(self, writes: Iterable[_PartitionWrite]) -> None:
        for group_id in {each.key.group_id for each in writes}:
            self._figures.of(group_id).dead_letter_requests += 1

    def _count_failures(self, writes: Iterable[_PartitionWrite]) -> None:
        for group_id in {each.key.group_id for each in writes}:
            self._figures.of(group_id).dead_letter_failures += 1
