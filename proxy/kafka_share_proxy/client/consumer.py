"""The calls of an application (client/README.md rules 2-4 and 13-15).

async with open_consumer("localhost:9092", group="g", topics=["orders"]) as consumer:
    while True:
        result = await consumer.poll(1)
        start(result.records)
        await consumer.commit(finished())
        if busy & result.to_be_revoked:
            consumer.delay_revoke(busy & result.to_be_revoked)
        abort(result.lost)
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from kafka_share_proxy.client.application_poll import POLL_RECORDS_MAX, ApplicationPoll, PollResult
from kafka_share_proxy.client.arguments import (
    PartitionName,
    check_pattern,
    checked_offsets,
    named_partition,
    named_partitions,
    named_topics,
)
from kafka_share_proxy.client.cluster_calls import ClusterCalls
from kafka_share_proxy.client.deserializers import Deserializers, RecordDeserializationError
from kafka_share_proxy.client.group_metadata import group_metadata
from kafka_share_proxy.client.individual_commits import IndividualCommits, LeftOut, count_offsets, left_out_text
from kafka_share_proxy.client.interceptors import ConsumerInterceptor, Interceptors
from kafka_share_proxy.client.iterated_records import IteratedRecords
from kafka_share_proxy.client.network_task import ConsumerClosed, NetworkTask, WokenUp
from kafka_share_proxy.client.notes import COMMITTED, POLLED, REVOKE_DELAYED, ConsumerNote
from kafka_share_proxy.client.polled_records import ConsumerRecord, PolledRecords
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.client.record_supply import RecordSupply
from kafka_share_proxy.consumer import events as event_types
from kafka_share_proxy.consumer.events import CallTimedOut
from kafka_share_proxy.consumer.fetch.offset_requests import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NOT_FOUND,
    FoundOffset,
)
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.groups.states import ConsumerState
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions, shown
from kafka_share_proxy.consumer.troubles import TroubleKind
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.values import TopicPartition


class Consumer(ClusterCalls):
    """Consumer of one Trio run; `open_consumer` creates it. Several tasks may use it, but only one may poll."""

    def __init__(
        self,
        network: NetworkTask,
        listener: RebalanceListener | None = None,
        *,
        revoke_in_same_poll: bool = False,
        check_crcs: bool = True,
        individual_commits: bool = False,
        max_poll_records: int = POLL_RECORDS_MAX,
        interceptors: Sequence[ConsumerInterceptor] = (),
        deserializers: Deserializers | None = None,
    ) -> None:
        super().__init__(network)
        self._network = network
        self._interceptors = Interceptors(interceptors, network.observe)
        network.core.commits.on_accepted = self._interceptors.committed
        self._core = network.core
        self._options = network.core.options
        self._individual = IndividualCommits(network.core.positions) if individual_commits else None
        self._application_poll = ApplicationPoll(
            network,
            listener or RebalanceListener(),
            [RecordSupply(network.core, each, check_crcs=check_crcs) for each in network.core.flows],
            self._individual,
            revoke_in_same_poll=revoke_in_same_poll,
        )
        self._max_poll_records = max_poll_records
        self._topics: frozenset[str] | None = frozenset()
        """Subscribed topics. None means the topics that match the pattern."""
        self._manual_assignment: Partitions | None = None
        """Partitions assigned without a group. None means that there is no such assignment."""
        self._unsubscribes_at_poll = False
        """True after a subscription to no topics: the next poll unsubscribes."""
        self._deserializers = deserializers or Deserializers()
        self._iterated = IteratedRecords(self._core, self._deserializers)

    def subscribe(self, topics: Iterable[str] | None = None, *, pattern: str | None = None) -> None:
        """Join the group with these topics, or with all topics whose whole name matches the pattern.

        With an empty list, the next poll calls `unsubscribe` first, with the partitions assigned then.

        Raises:
            ConfigurationError: there is no group.
            ValueError: neither topics nor a pattern, or both, or an invalid regular expression.
        """
        names = named_topics(topics or ())
        if self._options.group_id is None:
            raise ConfigurationError("subscribe needs a group: open the consumer with group=, or assign partitions")
        if self._options.key_filter is not None and self._options.key_filter.slots:
            raise ConfigurationError(
                "slots are committed under the view's name: assign partitions of the topic, or subscribe to the view"
            )
        if (names and pattern is not None) or (topics is None and pattern is None):
            raise ValueError("subscribe to topics or to a pattern; unsubscribe ends a subscription")
        check_pattern(pattern)
        self._unsubscribes_at_poll = not names and pattern is None
        if not self._unsubscribes_at_poll:
            self._network.apply(event_types.Subscribe(names, pattern))
            self._manual_assignment, self._topics = None, names if pattern is None else None

    def assign(self, partitions: Iterable[PartitionName]) -> None:
        """Read exactly these partitions, without a group assignment. Raises ValueError if a name is invalid."""
        names = named_partitions(partitions)
        self._network.apply(event_types.Assign(names))
        self._manual_assignment, self._unsubscribes_at_poll, self._topics = names, False, frozenset()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics. With a pattern, return those that match it at present."""
        return self._core.metadata.matching() if self._topics is None else self._topics

    async def unsubscribe(self) -> None:
        """Give up all partitions and leave the group. Pending revocations are completed now."""
        self._iterated.settle()
        if self._manual_assignment is None:
            await self._application_poll.report_revoked(self._core.positions.assigned)
        await self._network.call(event_types.LeaveGroup)
        self._application_poll.on_unsubscribed()
        self._manual_assignment, self._unsubscribes_at_poll, self._topics = None, False, frozenset()

    @property
    def assignment(self) -> Partitions:
        """Assigned partitions, including those that are paused or being revoked."""
        return self._core.positions.assigned if self._manual_assignment is None else self._manual_assignment

    @property
    def to_be_revoked(self) -> Partitions:
        """Partitions that are given up at the start of the next poll, unless delayed."""
        return self._core.ledger.next

    @property
    def lost(self) -> Partitions:
        """Partitions that were lost in the last poll."""
        return self._core.ledger.lost_now

    @property
    def paused(self) -> Partitions:
        """Assigned partitions that `pause` has stopped."""
        positions = self._core.positions
        return frozenset(each for each in positions.assigned if positions[each].paused)

    def delay_revoke(self, partitions: Iterable[PartitionName]) -> bool:
        """Delay the revocation of partitions by one poll. Call it again before every poll.

        Returns: False if any of the partitions is lost. The others are delayed all the same.

        Raises:
            ConfigurationError: offsets are committed automatically, and polled records count as processed.
            ValueError: one of the partitions is neither to be revoked nor lost. None is delayed.
        """
        names = named_partitions(partitions)
        now = self._network.clock.now()
        remaining_s = self._core.flow.deadline - now
        granted = self._core.delay_revoke(names, now)
        facts = {"partitions": shown(names), "granted": granted, "remaining_s": remaining_s}
        self._network.observe(ConsumerNote(REVOKE_DELAYED, facts))
        return granted

    async def poll(self, timeout_s: float = math.inf, *, max_records: int | None = None) -> PollResult:
        """Wait for records and rebalance events.

        It returns early if partitions are to be revoked or lost. A cancelled poll loses nothing: the next poll
        continues it.

        Args:
            timeout_s: seconds to wait. 0 returns the records that are available.
            max_records: maximum number of records. None uses the setting of the consumer. Later polls return the rest.

        Raises:
            ConsumerError: a failure that no other call reports. Another poll may succeed, unless the error is repeated.
            WokenUp: `wakeup` was called. trio.BusyResourceError: another task polls.
        """
        if math.isnan(timeout_s) or timeout_s < 0:
            raise ValueError(f"timeout_s {timeout_s}: 0 or more seconds")
        records_max = self._max_poll_records if max_records is None else max_records
        if records_max < 1:
            raise ValueError(f"max_records {max_records}: 1 or more")
        self._iterated.settle()
        if self._iterated.has_remaining and not self._unsubscribes_at_poll:
            result = self._add_iterated(await self._poll_once(0, 0), records_max)
        else:
            result = await self._poll_once(timeout_s, records_max)
            if self._deserializers:
                self._iterated.begin(result.records)
                result = self._add_iterated(result, records_max)
        self._application_poll.advance_positions(result.records.parts)
        return result

    def _add_iterated(self, result: PollResult, records_max: int) -> PollResult:
        """Add remaining records to the result. A deserialization error must not hide its rebalance events."""
        try:
            return result._replace(records=self._iterated.take(records_max))
        except RecordDeserializationError:
            if not (result.to_be_revoked or result.lost):
                raise
            return result._replace(records=PolledRecords())

    async def _poll_once(self, timeout_s: float, records_max: int) -> PollResult:
        started_at = trio.current_time()
        if self._unsubscribes_at_poll:
            await self.unsubscribe()
        result = await self._application_poll.run(started_at + timeout_s, records_max)
        facts = {**result.records.counts(), "took_s": trio.current_time() - started_at}
        self._network.observe(ConsumerNote(POLLED, facts))
        return self._run_interceptors(result) if self._interceptors and len(result.records) else result

    def _run_interceptors(self, result: PollResult) -> PollResult:
        records = self._interceptors.consumed(result.records)
        if self._individual is not None and records is not result.records:
            self._individual.left_out(result.records.parts, records)
        return result._replace(records=records)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records without end. After a loop ends, the next loop or poll begins with the remaining records.

        Commits and `position` include the records up to the last one returned to the loop.
        """
        return self._iterated.async_iterator(self)

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. Other tasks run only when a new poll is needed."""
        iterated = self._iterated
        while True:
            if iterated.position.moves == iterated.moves:
                for record in iterated.current:
                    return record
            if not iterated.advance():
                iterated.begin((await self._poll_once(math.inf, self._max_poll_records)).records)

    def wakeup(self) -> None:
        """Make the waiting poll, or else the next one, raise WokenUp. In Trio, prefer to cancel the poll."""
        self._network.interrupt(WokenUp("wakeup was called"))

    def seek(self, partition: PartitionName, offset: int) -> None:
        """Set the position. Raises ValueError if the partition is not assigned or the offset is negative."""
        name = self._assigned_partition(partition)
        if offset < 0:
            raise ValueError(f"offset {offset} of {name} is negative")
        self._iterated.forget(name)
        self._network.apply(event_types.Seek(name, offset))

    async def seek_to_beginning(self, partitions: Iterable[PartitionName] = ()) -> None:
        """Seek to the first record of these or all assigned partitions. Raises as `seek` and `end_offsets`."""
        await self._seek_to(partitions, self.beginning_offsets)

    async def seek_to_end(self, partitions: Iterable[PartitionName] = ()) -> None:
        """Seek to the end of these or all assigned partitions. Raises as `seek` and `end_offsets`."""
        await self._seek_to(partitions, self.end_offsets)

    def high_watermark(self, partition: PartitionName) -> int | None:
        """Return the high watermark of the last Fetch, or None before it. Raises ValueError if it is not assigned."""
        position = self._core.positions.get(self._assigned_partition(partition))
        return None if position is None else position.high_watermark

    def lag(self, partition: PartitionName) -> int | None:
        """Return the number of offsets from the position to the end, as the last Fetch reported it (KIP-695).

        The end is the last stable offset with read_committed, otherwise the high watermark. None before the first
        Fetch. Raises ValueError if the partition is not assigned.
        """
        self._iterated.settle()
        position = self._core.positions.get(self._assigned_partition(partition))
        return None if position is None else position.lag(read_committed=self._options.read_committed)

    def pause(self, partitions: Iterable[PartitionName]) -> None:
        """Stop returning records of partitions until `resume`. Raises ValueError if one is not assigned."""
        self._network.apply(event_types.Pause(frozenset(map(self._assigned_partition, partitions))))

    def resume(self, partitions: Iterable[PartitionName]) -> None:
        """Return records of partitions again. Raises ValueError if one is not assigned."""
        self._network.apply(event_types.Resume(frozenset(map(self._assigned_partition, partitions))))

    # Offsets

    async def position(self, partition: PartitionName) -> int:
        """Return the offset of the next record of the main flow, once it is known.

        Raises:
            ValueError: the partition is not assigned, or no longer.
            NoOffsetForPartition: there is no committed offset, and auto_offset_reset is "none".
        """
        name = self._assigned_partition(partition)
        self._iterated.settle()

        def is_settled() -> bool:
            position = self._core.positions.get(name)
            return position is not None and (position.offset is not None or position.problem is not None)

        await self._network.wait_until(
            lambda: is_settled() or name not in self.assignment, call=f"looking up the position of {name}"
        )
        position = self._core.positions.get(self._assigned_partition(name))
        if position is not None and position.problem is not None:
            raise position.problem
        return -1 if position is None or position.offset is None else position.offset

    async def commit(self, offsets: Mapping[Any, int | OffsetAndMetadata] | None = None) -> LeftOut:
        """Commit offsets and wait for the response.

        If cancelled, the commit may have been executed, or may be executed later.

        Args:
            offsets: partition -> next offset to read, as a number or with metadata. None commits all records that poll
                has returned, or with individual commits all records that are done.

        Returns: ranges of done records, by partition, for which a broker has no room (4,096 characters). They are
        delivered again after a restart, unless the next commit stores them. Always empty through the proxy. A warning
        is also logged.

        Raises:
            PartitionLostError: some partitions no longer belong to this member. The others are committed.
            ConsumerError: some were refused; notes name each. ConfigurationError: there is no group.
        """
        self._require_group("commit")
        to_commit = self._offsets_to_commit() if offsets is None else self._core.split(checked_offsets(offsets))
        started_at = trio.current_time()
        outcome = await self._network.call(lambda call_id: event_types.Commit(call_id, to_commit))
        errors = outcome.errors if isinstance(outcome, event_types.CommitRefused) else {}
        left_out: LeftOut = {} if outcome is None else outcome.left_out
        facts = {"partitions": shown(to_commit), "took_s": trio.current_time() - started_at, "refused": shown(errors)}
        self._network.observe(ConsumerNote(COMMITTED, {**facts, "left_out": count_offsets(left_out)}))
        for each, ranges in left_out.items():
            self._network.log.warning(TroubleKind.REQUEST, left_out_text(each, ranges))
        if isinstance(outcome, event_types.CommitRefused):
            raise outcome.as_error()
        if self._individual is not None:
            self._individual.committed({each: to_commit[each] for each in to_commit if each not in left_out})
        return left_out

    def done(self, record: ConsumerRecord) -> bool:
        """Mark a record as processed, in any order. `commit` without arguments commits all records that are done.

        Returns: False if the partition no longer belongs to this member. Another member processes the record again.

        Raises:
            ConfigurationError: the consumer was not opened with individual_commits=True.
            ValueError: the record was not returned by poll, or is done already.
        """
        if self._individual is None:
            raise ConfigurationError("done needs individual_commits=True when the consumer is opened")
        return self._individual.done(TopicPartition(record.topic, record.partition), record.offset)

    @asynccontextmanager
    async def work(self, record: ConsumerRecord) -> AsyncIterator[ConsumerRecord]:
        """Mark a record as done when the block ends without an error. Raises as `done`."""
        if self._individual is None:
            raise ConfigurationError("work needs individual_commits=True when the consumer is opened")
        yield record
        self.done(record)

    async def committed(self, partitions: Iterable[PartitionName]) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, or None. Raises ConfigurationError if there is no group."""
        self._require_group("committed")
        names = named_partitions(partitions)
        committed: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if names:
            committed = await self._network.call(lambda call_id: event_types.FetchCommitted(call_id, names))
        return committed

    async def beginning_offsets(
        self, partitions: Iterable[PartitionName], *, processed: bool = False
    ) -> Mapping[TopicPartition, int]:
        """Return the offset of the first available record of each partition.

        Args:
            partitions: any partitions, assigned or not.
            processed: return the lowest offset that either flow has returned (KIP-333). Sends no request.
        """
        if processed:
            return {each: span.start for each, span in (await self._processed_spans(partitions)).items()}
        listed = await self._list_offsets(dict.fromkeys(named_partitions(partitions), EARLIEST_TIMESTAMP))
        return {each: response.offset for each, response in listed.items()}

    async def end_offsets(
        self, partitions: Iterable[PartitionName], *, processed: bool = False
    ) -> Mapping[TopicPartition, int]:
        """Return the end offset of each partition: with read_committed the last stable offset.

        Args:
            partitions: any partitions, assigned or not.
            processed: return the end of what either flow has returned (KIP-333), for the partitions that have one.
        """
        if processed:
            return {each: span.end for each, span in (await self._processed_spans(partitions)).items()}
        listed = await self._list_offsets(dict.fromkeys(named_partitions(partitions), LATEST_TIMESTAMP))
        return {each: response.offset for each, response in listed.items()}

    async def offsets_for_times(self, timestamps: Mapping[Any, int]) -> Mapping[TopicPartition, FoundOffset | None]:
        """Return the first record at or after each time, in milliseconds since 1970. None if there is none."""
        if wrong := [each for each, timestamp in timestamps.items() if timestamp < 0]:
            raise ValueError(f"timestamp {timestamps[wrong[0]]} of {wrong[0]}: milliseconds since 1970, 0 or more")
        listed = await self._list_offsets({named_partition(each): timestamp for each, timestamp in timestamps.items()})
        return {each: None if response.offset == NOT_FOUND else response for each, response in listed.items()}

    def child_consumer_is_alive(self) -> bool:
        """Return True if a second flow has started to catch up after a crash. It stays alive for the next crash."""
        return self._core.catch_up.is_alive and not self._network.closed_reason

    def catching_up(self) -> Mapping[TopicPartition, tuple[OffsetSpan, ...]]:
        """Return the ranges of skipped offsets that were not returned yet, by partition, ascending."""
        return self._core.catch_up.remaining()

    def group_metadata(self) -> bytes:
        """Return the identity of this member for `send_offsets_to_transaction` of confluent-kafka's producer.

        Get it again for each transaction, because a broker refuses an outdated identity. Raises ConfigurationError if
        there is no group.
        """
        self._require_group("group_metadata")
        identity = self._core.membership.identity if self._manual_assignment is None else MemberIdentity()
        return group_metadata(self._options.group_id or "", identity)

    def state(self) -> ConsumerState:
        """Return the states of the coordinator and the rebalance, and the brokers that cannot be reached."""
        connections = self._network.connections
        return ConsumerState(
            self._core.coordinator_trace.state,
            self._core.rebalance_trace.state,
            {} if connections is None else dict(connections.troubles),
        )

    async def close(self) -> None:
        """Give up all partitions and leave the group. `open_consumer` calls this, with a time limit.

        Raises:
            Exception: raised by the listener. The group is left all the same.
        """
        if self._network.closed_reason:
            self._interceptors.close()
            return
        try:
            await self.unsubscribe()
        except ConsumerClosed:
            return  # the network task has ended on its own
        except CallTimedOut:
            raise
        except Exception:
            await self._network.call(event_types.LeaveGroup)
            raise
        finally:
            self._interceptors.close()

    def _require_group(self, call: str) -> None:
        if self._options.group_id is None:
            raise ConfigurationError(f"{call} needs a group: open the consumer with group=")

    def _assigned_partition(self, partition: PartitionName) -> TopicPartition:
        name = named_partition(partition)
        if name not in self.assignment:
            raise ValueError(f"{name} is not assigned: {shown(self.assignment) or 'nothing is'}")
        return name

    async def _seek_to(
        self,
        partitions: Iterable[PartitionName],
        query: Callable[[Iterable[PartitionName]], Awaitable[Mapping[TopicPartition, int]]],
    ) -> None:
        names = frozenset(map(self._assigned_partition, partitions)) or self.assignment
        for each, offset in (await query(names)).items():
            if each in self.assignment:  # it may have been lost meanwhile
                self.seek(each, offset)

    def _offsets_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._individual is not None:
            return self._individual.to_commit()
        self._iterated.settle()
        return self._core.to_commit(self._core.positions.assigned)

    async def _processed_spans(self, partitions: Iterable[PartitionName]) -> Mapping[TopicPartition, OffsetSpan]:
        names = named_partitions(partitions)
        await trio.lowlevel.checkpoint()
        self._iterated.settle()
        return self._core.processed(names)

    async def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, FoundOffset]:
        listed: Mapping[TopicPartition, FoundOffset] = {}
        if timestamps:
            listed = await self._network.call(lambda call_id: event_types.ListOffsets(call_id, timestamps))
        return listed
