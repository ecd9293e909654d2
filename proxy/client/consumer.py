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
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

from proxy.client.application_poll import POLL_RECORDS_MAX, ApplicationPoll, PollResult
from proxy.client.arguments import (
    PartitionName,
    check_pattern,
    checked_offsets,
    named_partition,
    named_partitions,
    named_topics,
)
from proxy.client.group_metadata import group_metadata
from proxy.client.individual_commits import IndividualCommits
from proxy.client.interceptors import ConsumerInterceptor, Interceptors
from proxy.client.iterated_records import IteratedRecords
from proxy.client.network_task import ConsumerClosed, NetworkTask
from proxy.client.notes import COMMITTED, POLLED, REVOKE_DELAYED, ConsumerNote
from proxy.client.polled_records import ConsumerRecord
from proxy.client.rebalance_listener import RebalanceListener
from proxy.client.record_supply import RecordSupply
from proxy.consumer import events as told
from proxy.consumer.classic_messages import MemberIdentity
from proxy.consumer.events import ConsumerError, PartitionLostError
from proxy.consumer.offset_requests import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NOT_FOUND, FoundOffset
from proxy.consumer.options import ConfigurationError
from proxy.consumer.partitions import OffsetAndMetadata, Partitions, shown
from proxy.consumer.states import CoordinatorState, RebalanceState
from proxy.offsets.ranges import OffsetSpan
from proxy.wire.values import TopicPartition


class WokenUp(ConsumerError):
    """`wakeup` was called."""


class ConsumerState(NamedTuple):
    """For logs and tests."""

    coordinator: CoordinatorState
    rebalance: RebalanceState
    troubles: Mapping[int, str]
    """Node -> why it could not be reached lately; -1 stands for the bootstrap servers."""


class Consumer:
    """One consumer; `open_consumer` makes it. Of one Trio run; several of its tasks may use it, one may poll."""

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
    ) -> None:
        self._network = network
        self._interceptors = Interceptors(interceptors, network.observe)
        network.core.commits.on_accepted = self._interceptors.committed
        self._core = network.core
        self._options = network.core.options
        self._individual = IndividualCommits(network.core.positions) if individual_commits else None
        self._poll = ApplicationPoll(
            network,
            listener or RebalanceListener(),
            [RecordSupply(network.core, each, check_crcs=check_crcs) for each in network.core.flows],
            self._individual,
            revoke_in_same_poll=revoke_in_same_poll,
        )
        self._max_poll_records = max_poll_records
        self._by_hand: Partitions | None = None
        """What was assigned without a group."""
        self._gives_up = False
        """Whether the next poll unsubscribes."""
        self._iterated = IteratedRecords(self._core)

    # What is to be read

    def subscribe(self, topics: Iterable[str] | None = None, *, pattern: str | None = None) -> None:
        """Belong to the group with these topics, or with all whose whole name matches the pattern.

        An empty list is `unsubscribe` by the next poll, whose records, and listener, are of what is read then.

        Raises:
            ConfigurationError: there is no group.
            ValueError: neither topics nor a pattern, or both; or no regular expression.
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
        self._gives_up = not names and pattern is None
        if not self._gives_up:
            self._network.tell(told.Subscribe(names, pattern))
            self._by_hand = None

    def assign(self, partitions: Iterable[PartitionName]) -> None:
        """Read exactly these, without sharing them in a group. ValueError: a name that no partition can have."""
        named = named_partitions(partitions)
        self._network.tell(told.Assign(named))
        self._by_hand, self._gives_up = named, False

    async def unsubscribe(self) -> None:
        """Give everything up, and leave the group; what was to be revoked is revoked now."""
        self._iterated.settle()
        if self._by_hand is None:
            await self._poll.tell_revoked(self._core.positions.assigned)
        await self._network.call(told.LeaveGroup)
        self._poll.gave_up_everything()
        self._by_hand, self._gives_up = None, False

    @property
    def assignment(self) -> Partitions:
        """What is read, also what is paused or to be revoked."""
        return self._core.positions.assigned if self._by_hand is None else self._by_hand

    @property
    def to_be_revoked(self) -> Partitions:
        """What is given up at the start of the next poll, unless delayed."""
        return self._core.ledger.next

    @property
    def lost(self) -> Partitions:
        """What was lost in the last poll."""
        return self._core.ledger.lost_now

    @property
    def paused(self) -> Partitions:
        """What was paused."""
        positions = self._core.positions
        return frozenset(each for each in positions.assigned if positions[each].paused)

    def delay_revoke(self, partitions: Iterable[PartitionName]) -> bool:
        """Put off by one poll that these are given up; to be said again before every poll.

        Returns: False if any of them is lost; the others are delayed all the same.

        Raises:
            ConfigurationError: offsets are committed automatically, which takes for processed what was polled.
            ValueError: one of them is neither to be revoked nor lost; nothing is delayed.
        """
        named = named_partitions(partitions)
        granted = self._core.delay_revoke(named)
        remaining_s = self._core.flow.deadline - trio.current_time()
        facts = {"partitions": shown(named), "granted": granted, "remaining_s": remaining_s}
        self._network.observe(ConsumerNote(REVOKE_DELAYED, facts))
        return granted

    # Records

    async def poll(self, timeout_s: float = math.inf, *, max_records: int | None = None) -> PollResult:
        """Wait for records, and for what a rebalance has to say.

        It ends early when partitions are to be revoked, or are lost. Cancelled, it loses nothing: the next poll goes on
        with it.

        Args:
            timeout_s: when to give up waiting; 0 asks for what is there.
            max_records: at most so many; None: as the consumer was opened with. The rest comes with the next poll.

        Raises:
            ConsumerError: something failed that no other call waits for; polling on may help, unless it comes again.
            WokenUp: by `wakeup`. trio.BusyResourceError: another task polls.
        """
        if math.isnan(timeout_s) or timeout_s < 0:
            raise ValueError(f"timeout_s {timeout_s}: 0 or more seconds")
        records_max = self._max_poll_records if max_records is None else max_records
        if records_max < 1:
            raise ValueError(f"max_records {max_records}: 1 or more")
        self._iterated.settle()
        if self._iterated.has_left and not self._gives_up:
            result = (await self._polled(0, 0))._replace(records=self._iterated.take(records_max))
        else:
            result = await self._polled(timeout_s, records_max)
        self._poll.passed(result.records.parts)
        return result

    async def _polled(self, timeout_s: float, records_max: int) -> PollResult:
        begun = trio.current_time()
        if self._gives_up:
            await self.unsubscribe()
        result = await self._poll.run(begun + timeout_s, records_max)
        facts = {**result.records.counts(), "took_s": trio.current_time() - begun}
        self._network.observe(ConsumerNote(POLLED, facts))
        return self._intercepted(result) if self._interceptors and len(result.records) else result

    def _intercepted(self, result: PollResult) -> PollResult:
        records = self._interceptors.consumed(result.records)
        if self._individual is not None and records is not result.records:
            self._individual.left_out(result.records.parts, records)
        return result._replace(records=records)

    def __aiter__(self) -> Consumer:
        """Record by record, for ever. What is left when the loop is left comes first in the next loop, or poll.

        Commits, and `position`, go up to the last record that the loop was given.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; other tasks run when a new poll is needed, not between records of the same."""
        iterated = self._iterated
        while True:
            if iterated.position.moves == iterated.moves:
                for record in iterated.current:
                    return record
            if not iterated.advance():
                iterated.begin((await self._polled(math.inf, self._max_poll_records)).records)

    def wakeup(self) -> None:
        """Have the poll that waits raise WokenUp, or else the next one; cancelling it is the better way in Trio."""
        self._network.interrupt(WokenUp("wakeup was called"))

    def seek(self, partition: PartitionName, offset: int) -> None:
        """Go on from there. ValueError: the partition is not assigned, or the offset is negative."""
        name = self._assigned(partition)
        if offset < 0:
            raise ValueError(f"offset {offset} of {name} is negative")
        self._iterated.forget(name)
        self._network.tell(told.Seek(name, offset))

    def pause(self, partitions: Iterable[PartitionName]) -> None:
        """Return no records of these until resumed. ValueError: one is not assigned."""
        self._network.tell(told.Pause(frozenset(map(self._assigned, partitions))))

    def resume(self, partitions: Iterable[PartitionName]) -> None:
        """Return records of these again. ValueError: one is not assigned."""
        self._network.tell(told.Resume(frozenset(map(self._assigned, partitions))))

    # Offsets

    async def position(self, partition: PartitionName) -> int:
        """The offset of the next record, once it is known; of the main flow where there are two.

        Raises:
            ValueError: the partition is not, or no more, assigned.
            NoOffsetForPartition: nothing is committed, and auto_offset_reset is "none".
        """
        name = self._assigned(partition)
        self._iterated.settle()

        def is_settled() -> bool:
            found = self._core.positions.get(name)
            return found is not None and (found.offset is not None or found.problem is not None)

        await self._network.wait_until(lambda: is_settled() or name not in self.assignment)
        found = self._core.positions.get(self._assigned(name))
        if found is not None and found.problem is not None:
            raise found.problem
        return -1 if found is None or found.offset is None else found.offset

    async def commit(self, offsets: Mapping[Any, int | OffsetAndMetadata] | None = None) -> None:
        """Commit, and wait until the group has it.

        Cancelled: the commit may have been carried out, or be carried out later.

        Args:
            offsets: partition -> the next offset to read, or that with metadata; None: all that poll has returned, or
                with individual commits all that is done.

        Raises:
            PartitionLostError: some are not this member's any more; the others are committed.
            ConsumerError: some were refused; notes name each. ConfigurationError: there is no group.
        """
        self._needs_group("commit")
        wanted = self._consumed() if offsets is None else self._core.split(checked_offsets(offsets))
        begun = trio.current_time()
        refused = await self._network.call(lambda call_id: told.Commit(call_id, wanted))
        errors = refused.errors if isinstance(refused, told.CommitRefused) else {}
        facts = {"partitions": shown(wanted), "took_s": trio.current_time() - begun, "refused": shown(errors)}
        self._network.observe(ConsumerNote(COMMITTED, facts))
        if isinstance(refused, told.CommitRefused):
            raise _one_of(refused)
        if self._individual is not None:
            self._individual.committed(wanted)

    def done(self, record: ConsumerRecord) -> bool:
        """Note that a record is processed, in any order; `commit` without arguments commits all that is done.

        Returns: False if its partition is not this member's any more: another member processes it again.

        Raises:
            ConfigurationError: the consumer was not opened with individual_commits=True.
            ValueError: the record was not returned by poll, or is done already.
        """
        if self._individual is None:
            raise ConfigurationError("done needs individual_commits=True when the consumer is opened")
        return self._individual.done(TopicPartition(record.topic, record.partition), record.offset)

    @asynccontextmanager
    async def work(self, record: ConsumerRecord) -> AsyncIterator[ConsumerRecord]:
        """Work on a record: it is done when the block ends without an error. Raises as `done`."""
        if self._individual is None:
            raise ConfigurationError("work needs individual_commits=True when the consumer is opened")
        yield record
        self.done(record)

    async def committed(self, partitions: Iterable[PartitionName]) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed of each; None where nothing is. ConfigurationError: there is no group."""
        self._needs_group("committed")
        named = named_partitions(partitions)
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if named:
            found = await self._network.call(lambda call_id: told.FetchCommitted(call_id, named))
        return found

    async def beginning_offsets(
        self, partitions: Iterable[PartitionName], *, processed: bool = False
    ) -> Mapping[TopicPartition, int]:
        """Of the first record of each that there still is.

        Args:
            partitions: any.
            processed: the lowest that either flow has returned (KIP-333), of those of which it has any; asks nobody.
        """
        if processed:
            return {each: span.start for each, span in (await self._processed(partitions)).items()}
        found = await self._listed(dict.fromkeys(named_partitions(partitions), EARLIEST_TIMESTAMP))
        return {each: answer.offset for each, answer in found.items()}

    async def end_offsets(
        self, partitions: Iterable[PartitionName], *, processed: bool = False
    ) -> Mapping[TopicPartition, int]:
        """Behind the last record of each: with read_committed behind the last that no open transaction holds back.

        Args:
            partitions: any.
            processed: behind the highest that either flow has returned (KIP-333), of those of which it has any.
        """
        if processed:
            return {each: span.end for each, span in (await self._processed(partitions)).items()}
        found = await self._listed(dict.fromkeys(named_partitions(partitions), LATEST_TIMESTAMP))
        return {each: answer.offset for each, answer in found.items()}

    async def offsets_for_times(self, timestamps: Mapping[Any, int]) -> Mapping[TopicPartition, FoundOffset | None]:
        """The first record at or after a time, in milliseconds since 1970; None where there is none."""
        if wrong := [each for each, timestamp in timestamps.items() if timestamp < 0]:
            raise ValueError(f"timestamp {timestamps[wrong[0]]} of {wrong[0]}: milliseconds since 1970, 0 or more")
        found = await self._listed({named_partition(each): timestamp for each, timestamp in timestamps.items()})
        return {each: None if answer.offset == NOT_FOUND else answer for each, answer in found.items()}

    def child_consumer_is_alive(self) -> bool:
        """Whether a second flow has begun to catch up with what a crash left behind; it stays for the next crash."""
        return self._core.catch_up.is_alive and not self._network.closed

    def catching_up(self) -> Mapping[TopicPartition, tuple[OffsetSpan, ...]]:
        """What was left behind and was not returned yet, by partition: ranges of offsets, ascending."""
        return self._core.catch_up.remaining()

    def group_metadata(self) -> bytes:
        """Who this member is, for `send_offsets_to_transaction` of confluent-kafka's producer.

        Take it anew for each transaction: a broker refuses a member that is none any more. ConfigurationError: there is
        no group.
        """
        self._needs_group("group_metadata")
        who = self._core.membership.who if self._by_hand is None else MemberIdentity()
        return group_metadata(self._options.group_id or "", who)

    def state(self) -> ConsumerState:
        """How far the coordinator and the rebalance are, and which brokers are in trouble."""
        connections = self._network.connections
        return ConsumerState(
            self._core.coordinator_trace.state,
            self._core.rebalance_trace.state,
            {} if connections is None else dict(connections.troubles),
        )

    async def close(self) -> None:
        """Give everything up and leave the group; `open_consumer` does it, and bounds how long it may take.

        Raises:
            Exception: what the listener raised; the group is left all the same.
        """
        if self._network.closed:
            self._interceptors.close()
            return
        try:
            await self.unsubscribe()
        except ConsumerClosed:
            return  # the network task has ended on its own
        except Exception:
            await self._network.call(told.LeaveGroup)
            raise
        finally:
            self._interceptors.close()

    # Inside: arguments

    def _needs_group(self, call: str) -> None:
        if self._options.group_id is None:
            raise ConfigurationError(f"{call} needs a group: open the consumer with group=")

    def _assigned(self, partition: PartitionName) -> TopicPartition:
        name = named_partition(partition)
        if name not in self.assignment:
            raise ValueError(f"{name} is not assigned: {shown(self.assignment) or 'nothing is'}")
        return name

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._individual is not None:
            return self._individual.to_commit()
        self._iterated.settle()
        return self._core.to_commit(self._core.positions.assigned)

    async def _processed(self, partitions: Iterable[PartitionName]) -> Mapping[TopicPartition, OffsetSpan]:
        named = named_partitions(partitions)
        await trio.lowlevel.checkpoint()
        self._iterated.settle()
        return self._core.processed(named)

    async def _listed(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, FoundOffset]:
        found: Mapping[TopicPartition, FoundOffset] = {}
        if timestamps:
            found = await self._network.call(lambda call_id: told.ListOffsets(call_id, timestamps))
        return found


def _one_of(refused: told.CommitRefused) -> Exception:
    """One error for the call, with a note for each partition that was refused."""
    errors = sorted(refused.errors.items())
    lost = [each for each, error in errors if isinstance(error, PartitionLostError)]
    chosen = PartitionLostError(f"not this member's any more: {shown(lost)}") if lost else errors[0][1]
    for each, error in errors:
        chosen.add_note(f"{each}: {error}")
    return chosen
