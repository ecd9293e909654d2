"""Execution of one Fetch that names views: a loop between its state machine, the cache and the brokers.

Rules: views/README.md 26 to 28 and 42 to 45. `views.model.scanning.FetchScan` decides what is read next and when to
respond. Each iteration of the loop

1. advances every slot as far as the cache reaches. The cache serves a reader only while its own connection is known to
   have READ on the base and to lead to the leader of the base partition, and only if the reader named no other leader
   epoch (views/README.md rule 42);
2. queries the state machine. If another client's Fetch is about to return the records, it is waited for. Everything
   else is read over this client's own upstream connection, together with the plain partitions of the request;
3. waits for the first of these reads, at most for the client's MaxWaitMs.

A connection has at most one upstream Fetch in flight, also across its requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from kafka_share_proxy.brokers.connection_slots import ConnectionSlot
from kafka_share_proxy.brokers.topic_leaders import judge, on_topics, request_topics, topics_to_query
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.interfaces import WorkersBusy
from kafka_share_proxy.loop.waiting import first_until, wait_until
from kafka_share_proxy.reading import upstream_fetch
from kafka_share_proxy.reading.upstream_fetch import PartitionRead, PartitionResponse
from kafka_share_proxy.views.fetch.base_reads import ViewRead, rotated
from kafka_share_proxy.views.fetch.shared_reads import READ_BYTES_MIN, Flight
from kafka_share_proxy.views.fetch.slot_parts import PartsMaking
from kafka_share_proxy.views.fetch.targets import PlainTarget, Target, refusal, unknown_partition
from kafka_share_proxy.views.fetch.view_chunks import ViewChunk
from kafka_share_proxy.views.kernel.slicing import Slice
from kafka_share_proxy.views.model.scanning import BasePosition, FetchScan, NextRead, PlainScan
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

WAIT_WITH_JOINED_S = 0.5
"""Longest wait of an upstream Fetch in a request that also joined another client's read. The client's next request may
be queued until that Fetch returns.
"""

JOINED_GRACE_S = 0.5
"""Seconds after which another client's read that does not wait at its broker is given up."""

ITERATION_STEPS = 128
"""Number of slots moved over a batch before other tasks of the loop run."""

WAIT_WITH_RECORDS_S = 1.0
"""Longest wait of an upstream Fetch in a request that has records, but fewer than MinBytes."""

ROOM_CHECK_S = 0.05
"""Seconds between two checks of a request that waits for memory or a thread."""

_ROTATIONS = ConnectionSlot[Iterator[int]](count)
"""Source of the partition that a request starts with, another one for each request."""

ROUNDS_MAX = 10_000
"""Maximum number of rounds of reads. More would be a bug. The response then contains what was read."""


class ViewFetching:
    """Execution of one request: `run` fills the scans, the errors and the plain entries."""

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
        self._rotation = next(_ROTATIONS.of(call.connection))
        now = services.timers.now()
        self.scan = FetchScan(
            [target.scan for target in targets],
            [plain.scan for plain in plains],
            deadline=now + max(request.max_wait_ms, 0) / 1000,
            min_bytes=request.min_bytes,
            max_bytes=self._max_bytes,
            scanned_max=views.options.scanned_bytes,
            rotation=self._rotation,
        )
        self._parts = PartsMaking(views.reads, views.workers, services.timers, call.connection.id)
        self._moved_slots = 0
        """Slots moved since other tasks of the loop ran."""
        self._held = 0
        """Bytes counted in the response budget."""
        self._is_short = False
        """True if the budget has no room for more."""
        for target in targets:
            for slot, division in target.divisions.items():
                self._reads.cache.note(target.key, division, (slot.slot,), now)
        self.throttle_time_ms = 0
        self.error_code = 0

    async def run(self) -> None:
        await self._check_rights_and_leaders()
        for _ in range(ROUNDS_MAX):
            await self._use_cache()
            step = self.scan.step(self._services.timers.now())
            if step is None or self.error_code or self._is_short or (self.scan.matched and self._is_crowded):
                break
            least = self._least_bytes(step)
            if not least or self._services.responses.has_room(least):
                await self._read(step)
            else:
                self._drop_passed()
                await self._has_room(least)

    def release(self) -> None:
        """Return the bytes of the response to the budget."""
        self._services.responses.release(self._held)
        self._held = 0

    def _hold(self, size: int) -> None:
        self._services.responses.hold(size)
        self._held += size

    def _drop_passed(self) -> None:
        """Make room for the next read: release what no slot will read again."""
        for target in self._targets:
            positions = target.scan.positions()
            chunks = [chunk for chunk in target.own_chunks if any(chunk.holds(each.offset) for each in positions)]
            self._keep(target, chunks)

    def _keep(self, target: Target, chunks: list[ViewChunk]) -> None:
        """Replace the chunks that this request holds of a partition, and their count in the budget."""
        self._hold(sum(len(chunk.records) for chunk in chunks) - sum(len(chunk.records) for chunk in target.own_chunks))
        target.own_chunks = chunks

    @property
    def _is_crowded(self) -> bool:
        """True if more than half of the response budget is used. The request then does not wait for more records."""
        responses = self._services.responses
        return responses.used > responses.limit // 2

    # Rights and leaders

    async def _check_rights_and_leaders(self) -> None:
        services, connection = self._services, self._connection
        names, ids = topics_to_query(connection, services, [target.partition for target in self._targets])
        if names or ids:
            on_topics(connection, services, await request_topics(connection, names, ids))
        for target in self._targets:
            self._update_sharing(target)
            self._note_newer_epoch(target)
            if judge(connection, services, target.partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._refuse(target, self._not_leader(target))

    def _update_sharing(self, target: Target) -> None:
        """Decide again whether the cache may serve the client (views/README.md rule 42)."""
        allowed = judge(self._connection, self._services, target.partition) == ErrorCode.NONE
        epoch = target.scan.current_leader_epoch
        target.may_share = allowed and not target.reads_alone and epoch in (-1, self._leader_epoch(target))

    def _note_newer_epoch(self, target: Target) -> None:
        """Have old metadata refreshed if the client knows a newer leader epoch."""
        services = self._services
        is_old = services.topology.age(target.name, services.timers.now()) > services.options.metadata_age_s
        if is_old and target.scan.current_leader_epoch > self._leader_epoch(target):
            services.topology.set_stale(target.name)

    def _leader_epoch(self, target: Target) -> int:
        leader = self._services.topology.leader(target.key.topic_id, target.key.partition)
        return -1 if leader is None else leader.epoch

    def _not_leader(self, target: Target) -> PartitionResponse:
        leader = self._services.topology.leader(target.key.topic_id, target.key.partition)
        entry = refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if leader is not None and leader.node_id >= 0:
            entry.current_leader = messages.FetchResponse.LeaderIdAndEpoch(
                leader_id=leader.node_id, leader_epoch=leader.epoch
            )
        return entry

    @staticmethod
    def _refuse(target: Target, refusal: PartitionResponse) -> None:
        target.refusal = refusal
        target.scan.is_refused = True

    # Using what was read before

    async def _use_cache(self) -> None:
        for target in rotated(self._targets, self._rotation):
            if target.scan.is_refused or self._is_short:
                continue
            self._update_sharing(target)
            for position in rotated(target.scan.positions(), self._rotation):
                await self._move(target, position)

    async def _move(self, target: Target, position: BasePosition) -> None:
        """Move the slots at a position over the batches that were read, as far as these reach."""
        scan, timers = self.scan, self._services.timers
        chunk: ViewChunk | None = None
        index = -1
        while slots := target.scan.at(position):
            if scan.is_spent or self._is_short or (scan.room <= 0 and scan.matched):
                return
            if chunk is None or not chunk.holds(position.offset):
                chunk, index = self._chunk(target, position), -1
            if chunk is None:
                return
            index = index if index >= 0 else chunk.index_of(position.offset)
            target.scan.log_offsets = chunk.log_offsets
            try:
                parts = await self._parts.of(chunk, index, slots, target.divisions)
            except WorkersBusy:
                await self._wait_for_workers()
                continue
            if isinstance(parts, ErrorCode):
                for slot in slots:
                    slot.position_error, slot.is_scanned = parts, True
                resource = {"topic": target.name, "partition": target.key.partition, "offset": position.offset}
                self._services.notes("view-batch-unreadable", **resource, reason=parts.name)
                return
            if not await self._has_room(parts.size):
                return
            batch = chunk.batches[index]
            before = scan.matched
            scan.advance(slots, batch, [_copied(part) for part in parts.slices], parts.decompressed_bytes)
            self._hold(scan.matched - before)
            position, index = BasePosition(batch.last_offset + 1, batch.leader_epoch), index + 1
            self._moved_slots += len(slots)
            if self._moved_slots >= ITERATION_STEPS:
                self._moved_slots = 0
                for slot in slots:
                    slot.gather()
                await self._reads.slices.next(timers)

    def _chunk(self, target: Target, position: BasePosition) -> ViewChunk | None:
        """Return the chunk of a read from exactly this position, or of an earlier one that continues."""
        for chunk in target.own_chunks:
            epoch_and_offset = (chunk.fetch_offset, chunk.requested_epoch)
            if position == epoch_and_offset or (chunk.holds(position.offset) and chunk.continues(*position)):
                return chunk
        if not target.may_share:
            return None
        now = self._services.timers.now()
        return self._reads.cache.find(
            target.key, position.offset, self._leader_epoch(target), now, position.last_fetched_epoch
        )

    async def _wait_for_workers(self) -> None:
        """Pause. End the request if the client's wait is over or there are records."""
        timers = self._services.timers
        if self.scan.matched or timers.now() >= self.scan.deadline:
            self._is_short = True
        await wait_until(timers, timers.now() + ROOM_CHECK_S)

    async def _has_room(self, size: int) -> bool:
        """Return True if the response budget has room. A request without any records waits for it."""
        responses, timers = self._services.responses, self._services.timers
        if not size or responses.has_room(size):
            return True
        self._is_short = True
        if self.scan.matched:
            return False
        responses.reserve(size)  # fails, and is counted as a refusal
        while timers.now() < self.scan.deadline:
            await wait_until(timers, min(timers.now() + ROOM_CHECK_S, self.scan.deadline))
            if responses.has_room(size):
                self._is_short = False
                return True
        return False

    # Reading

    async def _read(self, step: NextRead) -> None:
        under_way = ViewRead.of(self._connection)
        joined: list[tuple[Target, Flight]] = []
        base_reads: list[PartitionRead] = []
        for scan, position in step.positions:
            target = self._by_scan[scan]
            flight = self._flight_to_join(target, position, step.wait_s)
            if flight is not None:
                joined.append((target, flight))
            elif not self._is_known_end(target, position, step.wait_s):
                base_reads.append(self._base_read(target, position))
        own = None
        if under_way is None and (base_reads or step.plains):
            wait_s = min(step.wait_s, WAIT_WITH_JOINED_S) if joined else step.wait_s
            wait_s = min(wait_s, WAIT_WITH_RECORDS_S) if self.scan.matched else wait_s
            own = self._launch(rotated(base_reads, self._rotation), step.plains, wait_s)
        busy = own or (under_way if base_reads or step.plains else None)
        self._reads.figures.joined += bool(joined)
        await self._wait_for_first(busy, joined)
        if own is not None and own.done.done:
            self._absorb_own(own)
        for read in dict.fromkeys([under_way, *(flight for _, flight in joined)]):
            if read is not None and read.done.done:
                self._absorb(read, own=False, here=read is under_way)

    async def _wait_for_first(self, busy: ViewRead | None, joined: Sequence[tuple[Target, Flight]]) -> None:
        """Wait until the first of these reads has ended, successfully or not."""
        timers = self._services.timers
        now, deadline = timers.now(), self.scan.deadline
        if busy is not None and (not joined or now >= deadline):
            await busy.done
        elif joined:
            dones = [flight.done for _, flight in joined] + ([] if busy is None else [busy.done])
            await first_until(timers, deadline if now < deadline else now + JOINED_GRACE_S, *dones)
            late = timers.now() >= deadline
            for target, flight in joined:
                target.reads_alone = target.reads_alone or (late and not flight.done.done and flight.wait_s == 0)

    def _flight_to_join(self, target: Target, position: BasePosition, wait_s: float) -> Flight | None:
        """Return another client's read in flight that will return the records, or None."""
        if not target.may_share:
            return None
        epoch, now = self._leader_epoch(target), self._services.timers.now()
        flight = self._reads.flight(target.key, position.offset, epoch, wait_s, now)
        if flight is None:
            return None
        requested_epoch = flight.base_reads[target.key].last_fetched_epoch
        return flight if position.last_fetched_epoch in (-1, epoch, requested_epoch) else None

    def _is_known_end(self, target: Target, position: BasePosition, wait_s: float) -> bool:
        """True if another client's read waits here, so that a read without wait would be empty."""
        newest = self._reads.latest.get(target.key)
        if wait_s > 0 or not target.may_share or newest is None:
            return False
        if not self._reads.waits_at_end(target.key, position.offset, self._leader_epoch(target)):
            return False
        target.scan.on_response(position, newest.log_offsets)
        return True

    def _base_read(self, target: Target, position: BasePosition) -> PartitionRead:
        epoch = target.scan.current_leader_epoch
        return PartitionRead(
            key=target.key,
            name=target.name,
            offset=position.offset,
            leader_epoch=epoch if epoch >= 0 else self._leader_epoch(target),
            last_fetched_epoch=position.last_fetched_epoch,
            max_bytes=self._read_bytes(target, position),
        )

    def _read_bytes(self, target: Target, position: BasePosition) -> int:
        """Return the maximum bytes of a read: few if no records are known there, or the budget has no room."""
        share = max(self._views.options.read_bytes // max(len(self._targets), 1), READ_BYTES_MIN)
        is_known = bool(self._reads.least_bytes(target.key, position.offset))
        return share if is_known and self._services.responses.has_room(share) else READ_BYTES_MIN

    def _least_bytes(self, step: NextRead) -> int:
        """Return the memory of the smallest reads of a step."""
        return sum(
            self._reads.least_bytes(self._by_scan[scan].key, position.offset) for scan, position in step.positions
        )

    def _launch(self, base_reads: Sequence[PartitionRead], plains: Iterable[PlainScan], wait_s: float) -> ViewRead:
        plain_targets = [self._plain_by_scan[scan] for scan in plains]
        base_reads, plain_targets, wait_s = self._without_conflicts(base_reads, plain_targets, wait_s)
        session_id, self._session_id = self._session_id, 0
        read_bytes = sum(base_read.max_bytes for base_read in base_reads)
        return ViewRead(
            self._connection,
            self._services,
            self._reads,
            base_reads,
            [target.plain for target in plain_targets],
            wait_s=wait_s,
            max_bytes=max(read_bytes if base_reads else 0, self._max_bytes if plain_targets else 0),
            read_committed=self._read_committed,
            version=self._version if plain_targets else None,
            session_id=session_id,
            bases_first=bool(self._rotation % 2),
        )

    def _without_conflicts(
        self, base_reads: Sequence[PartitionRead], plains: list[PlainTarget], wait_s: float
    ) -> tuple[Sequence[PartitionRead], list[PlainTarget], float]:
        """Return what one Fetch can read, and its wait.

        A base partition at two offsets is read in two requests: for the views first, then as a plain partition.
        """
        offsets = {plain.base: plain.plain.entry.fetch_offset for plain in plains}
        by_key = {target.key: target for target in self._targets}

        def conflicts(read: PartitionRead) -> bool:
            partition = (self._topic(read), read.key.partition)
            return partition in offsets and offsets[partition] != read.offset

        conflicting = [read for read in base_reads if conflicts(read)]
        if any(by_key[read.key].empty_read_at != read.offset for read in conflicting):
            return base_reads, [], 0.0
        return [read for read in base_reads if read not in conflicting], plains, wait_s

    def _topic(self, base_read: PartitionRead) -> bytes | str:
        return base_read.key.topic_id if self._version >= upstream_fetch.FETCH_VERSION_WITH_IDS else base_read.name

    def _absorb_own(self, read: ViewRead) -> None:
        self.error_code = read.error_code
        self.throttle_time_ms = max(self.throttle_time_ms, read.throttle_time_ms)
        if read.throttle_time_ms:
            self.scan.deadline = self._services.timers.now()
        for plain in self._plains:
            self._absorb_plain(plain, read.plains.get(plain.base))
        self._absorb(read, own=True, here=True)

    def _absorb(self, read: Flight, *, own: bool, here: bool) -> None:
        """Process a read. `own`: made by this request. `here`: over this connection."""
        if read.failure is not None and here:
            raise read.failure
        if read.failure is not None:
            return  # its client has disconnected; the next iteration reads again
        for target in self._targets:
            base_read = read.base_reads.get(target.key)
            if base_read is not None and not target.scan.is_refused and (own or target.may_share):
                self._absorb_base_read(target, base_read, read, own=own)

    def _absorb_base_read(self, target: Target, base_read: PartitionRead, read: Flight, *, own: bool) -> None:
        key, position = target.key, BasePosition(base_read.offset, base_read.last_fetched_epoch)
        if key in read.refusals:
            if own:
                self._refused(target, position, read.refusals[key])
            target.reads_alone = True
        elif key in read.log_offsets:
            target.scan.on_response(position, read.log_offsets[key])
            if key not in read.chunks:
                target.empty_read_at = base_read.offset
            elif own:
                self._keep(target, [read.chunks[key]])
        elif own:
            self._refuse(target, unknown_partition())

    def _refused(self, target: Target, position: BasePosition, response: PartitionResponse) -> None:
        """Apply an error: of the partition to every slot, of a position only to the slots at it."""
        diverges = not response.error_code
        if response.error_code != ErrorCode.OFFSET_OUT_OF_RANGE and not diverges:
            self._refuse(target, response)
            return
        for slot in target.scan.at(position):
            if diverges and slot.last_fetched_epoch != position.last_fetched_epoch:
                continue  # the client named no epoch, and continues with the others
            slot.is_scanned, slot.position_error = True, ErrorCode.OFFSET_OUT_OF_RANGE
            if slot.position == slot.fetch_offset:
                target.slot_refusals[slot] = response

    def _absorb_plain(self, target: PlainTarget, response: PartitionResponse | None) -> None:
        if response is None or target.scan.is_done:
            return
        target.response = response
        target.scan.is_scanned = True
        target.scan.bytes = len(response.records or b"")
        self._hold(target.scan.bytes)
        refused = bool(response.error_code) or response.diverging_epoch.end_offset >= 0
        target.scan.is_refused = refused or response.preferred_read_replica >= 0
        target.scan.is_done = bool(target.scan.bytes) or refused


def _copied(part: Slice) -> Slice:
    """Return a part with its own bytes: a response must not keep an evicted chunk in memory."""
    return part._replace(batch=bytes(part.batch)) if isinstance(part.batch, memoryview) else part
