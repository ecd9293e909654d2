"""A Fetch that names views: the loop between its machine, the cache, and the brokers (views/README.md rule 28).

Theory of operation. `views.model.scanning.FetchScan` decides what is read next and when to answer. Each turn of the
loop

1. moves every slot as far as the cache goes. A reader is served from it only while its own connection is known to have
   READ on the base and to lead to the base partition's leader, and only if it named no other leader epoch
   (views/README.md rule 42);
2. asks the machine. What another client's Fetch is about to bring is waited for; what nobody reads is read on this
   client's own upstream connection, together with the plain partitions of the request;
3. waits for the first of these to come, at most for the client's wait.

Never a second upstream Fetch while one is under way on a connection, which is also true across its requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from proxy.brokers.connection_slots import ConnectionSlot
from proxy.brokers.topic_leaders import ask_topics, judge, tell_topics, topics_to_ask
from proxy.forwarding.interfaces import Call
from proxy.loop.interfaces import WorkersBusy
from proxy.loop.waiting import first_until, wait_until
from proxy.reading.chunk_cache import ReadKey
from proxy.reading.upstream_fetch import FETCH_VERSION_WITH_IDS, AskedPartition, PartitionAnswer, PartitionRead
from proxy.views.fetch.base_reads import READ_BYTES_MIN, ViewRead, in_turn
from proxy.views.fetch.shared_reads import Flight
from proxy.views.fetch.slot_parts import PartsMaking, PartsOfBatch
from proxy.views.fetch.view_chunks import Division, ViewChunk
from proxy.views.kernel.slicing import Slice
from proxy.views.model.scanning import BasePlace, BaseScan, FetchScan, NextRead, PlainScan, SlotScan
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicIdPartition

PARKED_WAIT_S = 0.5
"""Longest wait of an upstream Fetch beside which its request waits for another client's: it may be answered early, and
what the client asks next waits behind that Fetch."""

JOINED_GRACE_S = 0.5
"""A read of another client's that does not wait at its broker is given up after this; then this one reads itself."""

TURN_STEPS = 128
"""Slots that are moved over a batch before others of the loop have their turn."""

HELD_WAIT_S = 1.0
"""Longest wait of a request that has records already, but fewer than its client's MinBytes: what it has takes room that
others may need."""

ROOM_LOOK_S = 0.05
"""How often a request that waits for room, or for a worker thread, looks whether there is some."""

_TURNS = ConnectionSlot[Iterator[int]](count)
"""Numbers the Fetch requests of a connection from 0 on: each begins with another partition."""

ROUNDS_MAX = 10_000
"""Turns of one request's loop; more is a mistake of ours, and the request is answered with what it has."""


@dataclass(slots=True, eq=False)
class Target:
    """One base partition that the request reads through views or filters."""

    key: ReadKey
    name: str
    """Of the base topic."""
    scan: BaseScan
    divisions: dict[SlotScan, Division]
    may_share: bool = False
    """What others read may be used."""
    is_alone: bool = False
    """A read that this request waited for went wrong: from now on only its own."""
    dry_at: int = -1
    """A read from here brought nothing."""
    refusal: PartitionAnswer | None = None
    """Of the broker, or ours."""
    slot_refusals: dict[SlotScan, PartitionAnswer] = field(default_factory=dict)
    """Those that are about the place of a slot, and say nothing of the others."""
    own: list[ViewChunk] = field(default_factory=list)
    """What this request read itself."""


@dataclass(slots=True, eq=False)
class PlainTarget:
    """One partition that is no view."""

    plain: AskedPartition
    scan: PlainScan
    base: tuple[bytes | str, int]
    """Topic and partition as upstream is asked."""
    answer: PartitionAnswer | None = None


class ViewFetching:
    """One request. `run` fills the scans, refusals and plain answers."""

    def __init__(
        self,
        call: Call[messages.FetchRequest],
        views: ViewServices,
        targets: Sequence[Target],
        plains: Sequence[PlainTarget],
    ) -> None:
        request, services = call.message, views.services
        self._connection = call.connection
        self._services, self._views, self._reads = services, views, views.reads
        self._version: int = call.version
        self._targets = targets
        self._by_scan = {target.scan: target for target in targets}
        self._plains = plains
        self._plain_by_scan = {plain.scan: plain for plain in plains}
        self._read_committed = bool(request.isolation_level)
        self._max_bytes: int = min(request.max_bytes, services.limits.local_answer_bytes)
        self._session_id: int = request.session_id
        self._turn = next(_TURNS.of(call.connection))
        now = services.timers.now()
        self.scan = FetchScan(
            [target.scan for target in targets],
            [plain.scan for plain in plains],
            deadline=now + max(request.max_wait_ms, 0) / 1000,
            min_bytes=request.min_bytes,
            max_bytes=self._max_bytes,
            scanned_max=views.options.scanned_bytes,
            turn=self._turn,
        )
        self._parts = PartsMaking(views.reads, views.workers, services.timers, call.connection.id)
        self._moved = 0
        self._held = 0
        """Bytes that this request keeps in memory; the budget of answers counts them."""
        self._is_short = False
        """No room for more: it is answered with what it has."""
        for target in targets:
            for slot, division in target.divisions.items():
                self._reads.cache.note(target.key, division, (slot.slot,), now)
        self.throttle_time_ms = 0
        self.error_code = 0
        """Of the answer as a whole."""

    async def run(self) -> None:
        """Read until there is an answer."""
        await self._confirm()
        for _ in range(ROUNDS_MAX):
            await self._use_cache()
            step = self.scan.step(self._services.timers.now())
            if step is None or self.error_code or self._is_short or (self.scan.matched and self._is_crowded):
                break
            await self._read(step)

    def release(self) -> None:
        """The answer is made, or given up: from here on it is counted as one that is sent, or not at all."""
        self._services.answers.release(self._held)
        self._held = 0

    def _hold(self, size: int) -> None:
        self._services.answers.hold(size)
        self._held += size

    @property
    def _is_crowded(self) -> bool:
        """Others may need what is held here: no waiting for more."""
        answers = self._services.answers
        return answers.used > answers.limit // 2

    # Rights and leaders

    async def _confirm(self) -> None:
        """Learn what this connection may read, and who leads."""
        services, connection = self._services, self._connection
        places = [TopicIdPartition(target.key.topic_id, target.key.partition) for target in self._targets]
        names, ids = topics_to_ask(connection, services, places)
        if names or ids:
            tell_topics(connection, services, await ask_topics(connection, names, ids))
        for target in self._targets:
            self._judge(target)
            self._doubt(target)
            if judge(connection, services, _place(target)) == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._refuse(target, self._not_leader(target))

    def _judge(self, target: Target) -> None:
        allowed = judge(self._connection, self._services, _place(target)) == ErrorCode.NONE
        epoch = target.scan.current_leader_epoch
        target.may_share = allowed and not target.is_alone and epoch in (-1, self._leader_epoch(target))

    def _doubt(self, target: Target) -> None:
        """A client that names a later leader epoch knows better than the view of the cluster."""
        services = self._services
        is_old = services.topology.age(target.name, services.timers.now()) > services.options.view_age_s
        if is_old and target.scan.current_leader_epoch > self._leader_epoch(target):
            services.topology.mark_stale(target.name)

    def _leader_epoch(self, target: Target) -> int:
        leader = self._services.topology.leader(target.key.topic_id, target.key.partition)
        return -1 if leader is None else leader.epoch

    def _not_leader(self, target: Target) -> PartitionAnswer:
        """The partition answer that sends a client to the leader."""
        leader = self._services.topology.leader(target.key.topic_id, target.key.partition)
        entry = refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if leader is not None and leader.node_id >= 0:
            entry.current_leader = messages.FetchResponse.LeaderIdAndEpoch(
                leader_id=leader.node_id, leader_epoch=leader.epoch
            )
        return entry

    @staticmethod
    def _refuse(target: Target, refusal: PartitionAnswer) -> None:
        target.refusal = refusal
        target.scan.is_refused = True

    # What is here already

    async def _use_cache(self) -> None:
        """Move every slot as far as what was read reaches."""
        for target in in_turn(self._targets, self._turn):
            if target.scan.is_refused or self._is_short:
                continue
            self._judge(target)
            for place in in_turn(target.scan.places(), self._turn):
                await self._move(target, place)

    async def _move(self, target: Target, place: BasePlace) -> None:
        """Move the slots that stand at this place, as long as they stand together."""
        scan, timers = self.scan, self._services.timers
        chunk: ViewChunk | None = None
        index = -1
        while slots := target.scan.at(place):
            if scan.is_spent or self._is_short or (scan.room <= 0 and scan.matched):
                return
            if chunk is None or not chunk.holds(place.offset):
                chunk, index = self._chunk(target, place), -1
            if chunk is None:
                return
            index = index if index >= 0 else chunk.index_of(place.offset)
            target.scan.facts = chunk.facts
            try:
                parts = await self._parts.of(chunk, index, slots, target.divisions)
            except WorkersBusy:
                await self._wait_for_workers()
                continue
            if isinstance(parts, ErrorCode):
                for slot in slots:
                    slot.mistake, slot.is_looked = parts, True
                where = {"topic": target.name, "partition": target.key.partition, "offset": place.offset}
                self._services.notes("view-batch-unreadable", **where, reason=parts.name)
                return
            if not await self._has_room(parts):
                return
            batch = chunk.batches[index]
            before = scan.matched
            scan.take(slots, batch, [_by_itself(part) for part in parts.slices], parts.opened)
            self._hold(scan.matched - before)
            place, index = BasePlace(batch.last_offset + 1, batch.leader_epoch), index + 1
            self._moved += len(slots)
            if self._moved >= TURN_STEPS:
                self._moved = 0
                for slot in slots:
                    slot.gather()
                await self._reads.slices.next(timers)

    def _chunk(self, target: Target, place: BasePlace) -> ViewChunk | None:
        """What holds the next batch, and was read from that very place or continues what was read up to it."""
        for chunk in target.own:
            asked = (chunk.fetch_offset, chunk.asked_epoch)
            if place == asked or (chunk.holds(place.offset) and chunk.continues(*place)):
                return chunk
        if not target.may_share:
            return None
        now = self._services.timers.now()
        return self._reads.cache.find(
            target.key, place.offset, self._leader_epoch(target), now, place.last_fetched_epoch
        )

    async def _wait_for_workers(self) -> None:
        """Too many wait for them: this request looks again, as long as its client waits."""
        timers = self._services.timers
        if self.scan.matched or timers.now() >= self.scan.deadline:
            self._is_short = True
        await wait_until(timers, timers.now() + ROOM_LOOK_S)

    async def _has_room(self, parts: PartsOfBatch) -> bool:
        """Whether these parts fit beside everybody's answers. A request that has nothing yet waits for it."""
        answers, timers = self._services.answers, self._services.timers
        size = parts.size
        if not size or answers.has_room(size):
            return True
        self._is_short = True
        if self.scan.matched:
            return False
        answers.reserve(size)  # refused, and counted as such
        while timers.now() < self.scan.deadline:
            await wait_until(timers, min(timers.now() + ROOM_LOOK_S, self.scan.deadline))
            if answers.has_room(size):
                self._is_short = False
                return True
        return False

    # Reading

    async def _read(self, step: NextRead) -> None:
        """Have what the machine wants read, and wait for the first of it."""
        under_way = ViewRead.of(self._connection)
        joined: list[tuple[Target, Flight]] = []
        heads: list[PartitionRead] = []
        for target, place in ((self._by_scan[scan], place) for scan, place in step.places):
            flight = self._joined(target, place, step.wait_s)
            if flight is not None:
                joined.append((target, flight))
            elif not self._is_known_end(target, place, step.wait_s):
                heads.append(self._head(target, place))
        mine = None
        if under_way is None and (heads or step.plains):
            wait_s = min(step.wait_s, PARKED_WAIT_S) if joined else step.wait_s
            wait_s = min(wait_s, HELD_WAIT_S) if self.scan.matched else wait_s
            mine = self._launch(in_turn(heads, self._turn), step.plains, wait_s)
        busy = mine or (under_way if heads or step.plains else None)
        self._reads.figures.joined += bool(joined)
        await self._first(busy, joined)
        if mine is not None and mine.done.done:
            self._absorb_own(mine)
        for read in dict.fromkeys([under_way, *(flight for _, flight in joined)]):
            if read is not None and read.done.done:
                self._absorb(read, own=False, here=read is under_way)

    async def _first(self, busy: ViewRead | None, joined: Sequence[tuple[Target, Flight]]) -> None:
        """Until one of the reads is in: that of this connection, or one of other clients', which may fail us."""
        timers = self._services.timers
        now, deadline = timers.now(), self.scan.deadline
        if busy is not None and (not joined or now >= deadline):
            await busy.done
        elif joined:
            dones = [flight.done for _, flight in joined] + ([] if busy is None else [busy.done])
            await first_until(timers, deadline if now < deadline else now + JOINED_GRACE_S, *dones)
            late = timers.now() >= deadline
            for target, flight in joined:
                target.is_alone = target.is_alone or (late and not flight.done.done and flight.wait_s == 0)

    def _joined(self, target: Target, place: BasePlace, wait_s: float) -> Flight | None:
        """A read of another client's, if this one may use it."""
        if not target.may_share:
            return None
        epoch, now = self._leader_epoch(target), self._services.timers.now()
        flight = self._reads.flight(target.key, place.offset, epoch, wait_s, now)
        if flight is None:
            return None
        asked = flight.heads[target.key].last_fetched_epoch
        return flight if place.last_fetched_epoch in (-1, epoch, asked) else None

    def _is_known_end(self, target: Target, place: BasePlace, wait_s: float) -> bool:
        """Nothing waits at the broker here: another client's read stands at the same place. Only a look is wanted."""
        newest = self._reads.ends.get(target.key)
        if wait_s > 0 or not target.may_share or newest is None:
            return False
        if not self._reads.stands_at_end(target.key, place.offset, self._leader_epoch(target)):
            return False
        target.scan.told(place, newest)
        return True

    def _head(self, target: Target, place: BasePlace) -> PartitionRead:
        epoch = target.scan.current_leader_epoch
        return PartitionRead(
            key=target.key,
            name=target.name,
            offset=place.offset,
            leader_epoch=epoch if epoch >= 0 else self._leader_epoch(target),
            last_fetched_epoch=place.last_fetched_epoch,
            max_bytes=self._read_bytes(target, place),
        )

    def _read_bytes(self, target: Target, place: BasePlace) -> int:
        """How much to ask for: little where no more is known to be there, and where there is no room for more."""
        end = self._reads.ends.get(target.key)
        known = end is not None and place.offset < end.high_watermark
        share = max(self._views.options.read_bytes // max(len(self._targets), 1), READ_BYTES_MIN)
        return share if known and self._services.answers.has_room(share) else READ_BYTES_MIN

    def _launch(self, heads: Sequence[PartitionRead], plains: Iterable[PlainScan], wait_s: float) -> ViewRead:
        """One Fetch of our own, with each base partition once, also one wanted plain (views/README.md rule 21)."""
        asked = [self._plain_by_scan[scan] for scan in plains]
        heads, asked, wait_s = self._apart(heads, asked, wait_s)
        session_id, self._session_id = self._session_id, 0
        read_bytes = sum(head.max_bytes for head in heads)
        return ViewRead(
            self._connection,
            self._services,
            self._reads,
            heads,
            [target.plain for target in asked],
            wait_s=wait_s,
            max_bytes=max(read_bytes if heads else 0, self._max_bytes if asked else 0),
            read_committed=self._read_committed,
            version=self._version if asked else None,
            session_id=session_id,
            heads_first=bool(self._turn % 2),
        )

    def _apart(
        self, heads: Sequence[PartitionRead], plains: list[PlainTarget], wait_s: float
    ) -> tuple[Sequence[PartitionRead], list[PlainTarget], float]:
        """Never one base partition from two places in one question: the views go first, then the plain partition."""
        offsets = {plain.base: plain.plain.entry.fetch_offset for plain in plains}
        by_key = {target.key: target for target in self._targets}

        def conflicts(head: PartitionRead) -> bool:
            at = (self._topic(head), head.key.partition)
            return at in offsets and offsets[at] != head.offset

        if any(conflicts(head) and by_key[head.key].dry_at != head.offset for head in heads):
            return heads, [], 0.0
        return [head for head in heads if not conflicts(head)], plains, wait_s

    def _topic(self, head: PartitionRead) -> bytes | str:
        return head.key.topic_id if self._version >= FETCH_VERSION_WITH_IDS else head.name

    def _absorb_own(self, read: ViewRead) -> None:
        """Take over what the broker told this request beside the records of views."""
        self.error_code = read.error_code
        self.throttle_time_ms = max(self.throttle_time_ms, read.throttle_time_ms)
        if read.throttle_time_ms:
            self.scan.deadline = self._services.timers.now()
        for plain in self._plains:
            self._absorb_plain(plain, read.plains.get(plain.base))
        self._absorb(read, own=True, here=True)

    def _absorb(self, read: Flight, *, own: bool, here: bool) -> None:
        """Take over what a read brought: `own`, of this request; `here`, of this connection."""
        if read.failure is not None:
            if here:
                raise read.failure
            return  # its client is gone; the next turn reads anew
        for target in self._targets:
            head = read.heads.get(target.key)
            if head is not None and not target.scan.is_refused and (own or target.may_share):
                self._absorb_head(target, head, read, own=own)

    def _absorb_head(self, target: Target, head: PartitionRead, read: Flight, *, own: bool) -> None:
        key, place = target.key, BasePlace(head.offset, head.last_fetched_epoch)
        if key in read.refusals:
            if own:
                self._refused(target, place, read.refusals[key])
            target.is_alone = True
        elif key in read.facts:
            target.scan.told(place, read.facts[key])
            if key not in read.chunks:
                target.dry_at = head.offset
            elif own:
                self._hold(len(read.chunks[key].records) - sum(len(chunk.records) for chunk in target.own))
                target.own = [read.chunks[key]]
        elif own:
            self._refuse(target, unknown_partition())

    def _refused(self, target: Target, place: BasePlace, answer: PartitionAnswer) -> None:
        """An error of the partition is that of every slot; what is wrong with a place, of those that stand there."""
        diverges = not answer.error_code
        if answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE and not diverges:
            self._refuse(target, answer)
            return
        for slot in target.scan.at(place):
            if diverges and slot.last_fetched_epoch != place.last_fetched_epoch:
                continue  # it said none, and goes on with others
            slot.is_looked, slot.mistake = True, ErrorCode.OFFSET_OUT_OF_RANGE
            if slot.position == slot.fetch_offset:
                target.slot_refusals[slot] = answer

    def _absorb_plain(self, target: PlainTarget, answer: PartitionAnswer | None) -> None:
        if answer is None or target.scan.is_done:
            return
        target.answer = answer
        target.scan.is_looked = True
        target.scan.bytes = len(answer.records or b"")
        self._hold(target.scan.bytes)
        refused = bool(answer.error_code) or answer.diverging_epoch.end_offset >= 0
        target.scan.is_refused = refused or answer.preferred_read_replica >= 0
        target.scan.is_done = bool(target.scan.bytes) or refused


def _by_itself(part: Slice) -> Slice:
    """Records of an answer do not keep the chunk that they came in, which the cache may have let go of."""
    return part._replace(batch=bytes(part.batch)) if isinstance(part.batch, memoryview) else part


def unknown_partition() -> PartitionAnswer:
    """The partition answer where there is no such partition."""
    return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def refusal(code: ErrorCode) -> PartitionAnswer:
    """A partition answer that only has an error; as of a broker that did not even read (FetchResponse.java)."""
    return messages.FetchResponse.PartitionData(
        error_code=code, high_watermark=-1, aborted_transactions=[], records=None
    )


def _place(target: Target) -> TopicIdPartition:
    return TopicIdPartition(target.key.topic_id, target.key.partition)
