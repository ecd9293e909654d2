"""Audit events: what happened to deliveries, one event for a range of offsets, never one for a record.

Theory of operation. Whoever hands out or settles records says so here with a plain call that appends a tuple to a
bounded queue: nothing is formatted, looked up or waited for. `app.audit_shipping` takes events out, `lines` writes them
as JSON. Every event has the next number of `seq`; one that finds the queue full is dropped but has used up its number,
so whoever reads the events sees the gap. Settled means durable: an event comes when the change was applied.

Format (version 1), one JSON object a line. All: v, proxy_id, seq, ts_ms, kind, cluster, topic, partition, group, member
(group and member are null where they mean nothing). (proxy_id, seq) is unique. By kind:

    acquire   first, last, attempt, bytes, lock_ms        bytes: of the whole answer, on its first range
    settle    first, last, attempt, t_acquire_ms, outcome (accept, release, reject, gap, lock_timeout, session_close),
              renews, renew_ms                            renew_ms: held beyond the first lock's end by renewing
    fetch     lo, hi, rows_in, rows_out, bytes_in, bytes_out   one read of a partition; all keys: lo 0, hi 2^32
    load      interval_ms, sampled, buckets               what was handed out and settled since the last one, by key:
              {bucket: [rows, bytes, hold_ms]}, of 2^12 equal ranges of murmur2(key); a null key counts by its offset

The keys of a `load` event are a sample: at most `key_samples_per_s` batches a second are read for their keys, and the
partition's rows, bytes and hold times are spread as these were. Without samples all of it is in the bucket "all".
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proxy.loop.interfaces import Timers
from proxy.sharegroups.model.acknowledging import ACCEPT, GAP, REJECT, RELEASE
from proxy.sharegroups.model.coordinator import ShareKey
from proxy.sharegroups.model.offset_runs import GivenBack
from proxy.sharegroups.model.partition import SharePartition, Transition
from proxy.wire import records
from proxy.wire.batches import BatchTable
from proxy.wire.errors import ProxyError
from proxy.wire.key_hash import murmur2
from proxy.wire.values import TopicIdPartition

VERSION = 1
BUCKETS = 1 << 12
BUCKET_SHIFT = 20
"""murmur2 is 32 bits wide: 12 of them tell the bucket."""
HASH_SPACE = 1 << 32
ALL_KEYS = "all"

SAMPLED_RECORDS_MAX = 256
SAMPLED_BYTES_MAX = 64 << 10
"""Larger batches are not read for their keys: that would hold up the loop."""
SAMPLED_OPENED_BYTES_MAX = 256 << 10
"""Nor are those that become larger when opened."""
PLACES_MAX = 10_000
"""Partitions with load in one interval; those beyond are not told."""

OUTCOMES: Mapping[int, str] = {GAP: "gap", ACCEPT: "accept", RELEASE: "release", REJECT: "reject"}
LOCK_TIMEOUT, SESSION_CLOSE = "lock_timeout", "session_close"

FIELDS: Mapping[str, tuple[str, ...]] = {
    "acquire": ("first", "last", "attempt", "bytes", "lock_ms"),
    "settle": ("first", "last", "attempt", "t_acquire_ms", "outcome", "renews", "renew_ms"),
    "fetch": ("lo", "hi", "rows_in", "rows_out", "bytes_in", "bytes_out"),
    "load": ("interval_ms", "sampled", "buckets"),
}


class Event(NamedTuple):
    """One event, before it is written."""

    seq: int
    ts_ms: int
    kind: str
    place: TopicIdPartition
    group: str | None
    member: str | None
    values: tuple[Any, ...]
    """By FIELDS of the kind."""


@dataclass(slots=True)
class _Load:
    """What happened to one partition since the last `load` event."""

    rows: int = 0
    bytes: int = 0
    hold_ms: float = 0.0
    keys: dict[int, int] = field(default_factory=dict)
    """Bucket -> sampled records."""


class Audit:
    """Takes events in; one per process, where audit is on."""

    def __init__(self, timers: Timers, queue_events: int, key_samples_per_s: float = 0.0) -> None:
        self._timers = timers
        self._queue_events = queue_events
        self._sample_every_s = 1 / key_samples_per_s if key_samples_per_s > 0 else 0.0
        self._next_sample = 0.0
        self._queue: deque[Event] = deque()
        self._loads: dict[TopicIdPartition, _Load] = {}
        self._load_since = timers.now()
        self.seq = 0
        """Number of the last event, dropped ones included."""
        self.dropped = 0
        """Events that found the queue full."""

    # Events.

    def acquired(
        self, key: ShareKey, member_id: str, ranges: Iterable[tuple[int, int, int]], size: int, lock_s: float
    ) -> None:
        """Ranges (first, last, delivery count) of one partition were given to a member; `size`: bytes of the answer."""
        place = TopicIdPartition(key.topic_id, key.partition)
        load = self._load(place)
        lock_ms, left = round(lock_s * 1000), size
        for first, last, count in ranges:
            self._offer("acquire", place, key.group_id, member_id, (first, last, count, left, lock_ms))
            load.rows += last - first + 1
            load.bytes += left
            left = 0

    def settling(self, key: ShareKey, partition: SharePartition, transition: Transition, lock_s: float) -> None:
        """A change is about to be applied: call it before `SharePartition.apply`, which forgets who held what."""
        now = self._timers.now()
        for given in transition.given_back:
            self._settled(key, given, LOCK_TIMEOUT, lock_s, now)
        kinds = transition.kinds
        for index, run in enumerate(transition.runs):
            if run.pending is transition and run.partition is partition:
                outcome = OUTCOMES[kinds[index]] if kinds else SESSION_CLOSE
                self._settled(key, GivenBack.of(run), outcome, lock_s, now)

    def reverted(self, key: ShareKey, transition: Transition, lock_s: float) -> None:
        """A change was refused by the store: what its locks had ended meanwhile is free again."""
        for given in transition.given_back:
            self._settled(key, given, LOCK_TIMEOUT, lock_s, self._timers.now())

    def read(self, group_id: str, place: TopicIdPartition, batches: BatchTable, data: memoryview) -> None:
        """A Fetch has brought these whole batches; `data` is empty where the bytes are at another proxy."""
        rows, size = batches.records_count, batches[-1].end - batches[0].position
        self._offer("fetch", place, group_id, None, (0, HASH_SPACE, rows, rows, size, size))
        now = self._timers.now()
        if self._sample_every_s and now >= self._next_sample:
            self._next_sample = now + self._sample_every_s
            self._sample(place, batches[0], data)

    def tell_load(self) -> None:
        """Offer the `load` events of the time since the last call."""
        now = self._timers.now()
        interval_ms = round((now - self._load_since) * 1000)
        loads, self._loads, self._load_since = self._loads, {}, now
        for place, load in sorted(loads.items()):
            sampled = sum(load.keys.values())
            self._offer("load", place, None, None, (interval_ms, sampled, _spread(load, sampled)))

    # The way out.

    def take(self, events_max: int) -> list[Event]:
        """The oldest events, which are not kept here any longer."""
        queue = self._queue
        return [queue.popleft() for _ in range(min(events_max, len(queue)))]

    def __len__(self) -> int:
        return len(self._queue)

    def _offer(
        self, kind: str, place: TopicIdPartition, group: str | None, member: str | None, values: tuple[Any, ...]
    ) -> None:
        self.seq += 1
        if len(self._queue) >= self._queue_events:
            self.dropped += 1
            return
        self._queue.append(Event(self.seq, self._timers.wall_ms(), kind, place, group, member, values))

    def _settled(self, key: ShareKey, given: GivenBack, outcome: str, lock_s: float, now: float) -> None:
        place = TopicIdPartition(key.topic_id, key.partition)
        held_s = max(now - given.acquired_at, 0.0)
        t_acquire_ms = self._timers.wall_ms() - round(held_s * 1000)
        renew_ms = round(max(held_s - lock_s, 0.0) * 1000) if given.renewals else 0
        values = (given.first, given.last, given.attempt, t_acquire_ms, outcome, given.renewals, renew_ms)
        self._offer("settle", place, key.group_id, given.owner, values)
        self._load(place).hold_ms += held_s * 1000 * (given.last - given.first + 1)

    def _load(self, place: TopicIdPartition) -> _Load:
        load = self._loads.get(place)
        if load is None:
            load = _Load()
            if len(self._loads) < PLACES_MAX:
                self._loads[place] = load
        return load

    def _sample(self, place: TopicIdPartition, batch: Any, data: memoryview) -> None:
        """Count the keys of one batch, if it is small; a broken one, or of an old format, tells nothing."""
        if batch.is_control or batch.records_count > SAMPLED_RECORDS_MAX or batch.size > SAMPLED_BYTES_MAX:
            return
        try:
            found = records.decode_records(data[batch.position : batch.end], SAMPLED_OPENED_BYTES_MAX)
        except ProxyError:
            return
        keys = self._load(place).keys
        for record in found:
            key = record.key if record.key is not None else record.offset.to_bytes(8, "big", signed=True)
            bucket = murmur2(key) >> BUCKET_SHIFT
            keys[bucket] = keys.get(bucket, 0) + 1


def _spread(load: _Load, sampled: int) -> dict[str, list[int]]:
    """Rows, bytes and hold time over the buckets, as the sampled keys lie."""
    if not sampled:
        return {ALL_KEYS: [load.rows, load.bytes, round(load.hold_ms)]}
    return {
        str(bucket): [round(total * count / sampled) for total in (load.rows, load.bytes, load.hold_ms)]
        for bucket, count in sorted(load.keys.items())
    }


def lines(
    events: Iterable[Event], proxy_id: str, cluster: str | None, topic_name: Callable[[bytes], str]
) -> list[bytes]:
    """Events as JSON, a line each, line end included."""
    found = []
    for event in events:
        told = {"v": VERSION, "proxy_id": proxy_id, "seq": event.seq, "ts_ms": event.ts_ms, "kind": event.kind}
        told |= {"cluster": cluster, "topic": topic_name(event.place.topic_id), "partition": event.place.partition}
        told |= {"group": event.group, "member": event.member}
        told |= zip(FIELDS[event.kind], event.values, strict=True)
        found.append(json.dumps(told, separators=(",", ":")).encode() + b"\n")
    return found
