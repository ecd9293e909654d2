"""A journal that stores a state in a topic of the cluster, with one producer per partition.

`durable.state_producer` decides what is sent and what a response means. Appends requested in one loop iteration are
sent together at its end, one Produce to each leader (durable/README.md rule 6). The caller finds leaders and
coordinators when the journal calls `need_view`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Generic, TypeVar

from kafka_share_proxy.brokers import producer_messages
from kafka_share_proxy.brokers.append_frames import Appended, AppendFrames
from kafka_share_proxy.brokers.channel import Channel
from kafka_share_proxy.brokers.channels import BrokerChannels
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.durable.coming_appends import SHARE_MAX_S, ComingAppends
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.interfaces import JournalRefused, OutsideRecords
from kafka_share_proxy.durable.journal_events import NO_EVENTS, JournalEvents, refuse, report
from kafka_share_proxy.durable.journal_transactions import JournalTransactions
from kafka_share_proxy.durable.producer_requests import (
    Append,
    AppendInTransaction,
    Identify,
    Outcome,
    RequestType,
)
from kafka_share_proxy.durable.state_producer import (
    BATCH_BYTES_MAX,
    DENIED,
    IDENTITY_S,
    KEEP_ALIVE_S,
    StateProducer,
    WriterStage,
)
from kafka_share_proxy.durable.under_way import MOVED, Produce, UnderWay, forget
from kafka_share_proxy.loop.interfaces import Notes, Timer
from kafka_share_proxy.loop.promise import Callback, Promise, on_behalf_of
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode, LocalProtocolError
from kafka_share_proxy.wire.records.records import Record

K = TypeVar("K")
R = TypeVar("R")

_PRODUCE = ApiKey.PRODUCE


class TopicJournal(Generic[K]):
    """Journal over a topic. Refuses everything until `serve`, and again after `stop`."""

    def __init__(
        self,
        state: DescribedState[K],
        reactor: Reactor,
        notes: Notes,
        owner: str,
        channels: BrokerChannels,
        events: JournalEvents = NO_EVENTS,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        identity_s: float = IDENTITY_S,
    ) -> None:
        self.state = state
        self.leaders: dict[int, int] = {}
        self.coordinators: dict[int, int] = {}
        """Node id of the coordinator, by partition."""
        self.coming = ComingAppends()
        self.appends = 0
        self._message_bytes = BATCH_BYTES_MAX
        self._serving: dict[int, StateProducer] = {}
        """Producers of the partitions that accept appends."""
        # Each state has its own connections: a broker handles the requests of one connection in order, and states must
        # not wait for each other's appends.
        types: tuple[RequestType, ...] = (Identify, Append)
        self._purposes = {request_type: f"{request_type.__name__} {state.topic}" for request_type in types}
        self._reactor = reactor
        self._notes = notes
        self._owner = owner
        self._channels = channels
        self._frames = AppendFrames(state.topic)
        self._events = events
        self._report = partial(report, events, state.topic)
        self._keep_alive_s = keep_alive_s
        self._identity_s = identity_s
        self._producers: dict[int, StateProducer] = {}
        self._to_check: set[int] = set()
        """Partitions that may have something to send."""
        self._is_planned = False
        self._alarm: Timer | None = None
        self._alarm_at = inf
        self._busy: dict[int, set[int]] = {}
        """Leaders with a Produce in flight -> partitions that wait for its response."""
        self._under_way = UnderWay(self._purposes)
        self._transactions = JournalTransactions(self, channels, notes)
        self._may_be_late = False
        self._requested_at: float | None = None
        """Time of the first append that waits for coming appends."""
        self._rings_at = -inf
        """Time at which the alarm of that wait rings."""

    # Journal interface

    def append(self, records: Sequence[tuple[K, bytes | None]]) -> Promise[None]:
        """Append records of one partition."""
        promise: Promise[None] = Promise()
        if records:
            partition = self._partition_of(records)
            self._add(self._serving.get(partition), partition, records, promise)
        else:
            promise.set(None)
        return promise

    def append_with(
        self, records: Sequence[tuple[K, bytes | None]], outside: Sequence[OutsideRecords]
    ) -> Promise[None]:
        """See interfaces.TransactionalJournal. All records belong to one partition of the state."""
        promise: Promise[None] = Promise()
        partition = self._partition_of(records)
        producer = self._serving.get(partition)
        if producer is None:
            promise.fail(self._not_loaded())
            return promise
        code = producer.add_transaction(self._encoded(records), outside, promise, self._reactor.now())
        if code == NO_ERROR:
            self._to_check.add(partition)
            self._schedule_check()
        else:
            promise.fail(JournalRefused(code, f"too much for one transaction of topic {self.state.topic}, or too many"))
        return promise

    def restore(self, partition: int, records: Sequence[tuple[K, bytes]]) -> Promise[None]:
        """Append to a partition that is not served yet."""
        promise: Promise[None] = Promise()
        self._add(self._producers[partition], partition, records, promise)
        return promise

    def _partition_of(self, records: Sequence[tuple[K, bytes | None]]) -> int:
        partition_of = self.state.partition_of
        partition = partition_of(records[0][0])
        for key, _ in records[1:]:
            if partition_of(key) != partition:
                raise LocalProtocolError(f"one append to several partitions of {self.state.topic}")
        return partition

    def _not_loaded(self) -> JournalRefused:
        return JournalRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.state.name} is not loaded")

    def _encoded(self, records: Sequence[tuple[K, bytes | None]]) -> list[Record]:
        time_ms, encode_key = self._reactor.wall_ms(), self.state.encode_key
        return [Record(encode_key(key), value, (), time_ms) for key, value in records]

    def _add(
        self,
        producer: StateProducer | None,
        partition: int,
        records: Sequence[tuple[K, bytes | None]],
        promise: Promise[None],
    ) -> None:
        if producer is None:
            promise.fail(self._not_loaded())
        elif producer.add(self._encoded(records), promise, self._reactor.now()):
            self._to_check.add(partition)
            self._schedule_check()
        else:
            reason = f"too much waits for topic {self.state.topic}"
            promise.fail(JournalRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))

    # Ownership

    def keep_alive(self, keep_alive_s: float, identity_s: float) -> None:
        self._keep_alive_s, self._identity_s = keep_alive_s, identity_s
        for producer in self._producers.values():
            producer.renew_every(keep_alive_s, identity_s, self._reactor.now())
        self._to_check.update(self._producers)
        self._schedule_check()

    def connect(self) -> None:
        """Open the channels to all leaders and coordinators, before a takeover needs them."""
        for nodes, request_type in ((self.coordinators, Identify), (self.leaders, Append)):
            for node_id in set(nodes.values()):
                self._channels.get(node_id, self._purposes[request_type])

    def limit_batches(self, message_bytes: int) -> None:
        self._message_bytes = message_bytes
        for producer in self._producers.values():
            producer.limit_batches(message_bytes)

    def take_over(self, partitions: Iterable[int]) -> None:
        """Begin the takeover. `JournalEvents.taken_over` reports each partition."""
        for partition in partitions:
            self._serving.pop(partition, None)
            producer = self._producers[partition] = StateProducer(
                self._takeover, self.state.keep_alive(), self._keep_alive_s, self._identity_s
            )
            producer.limit_batches(self._message_bytes)
            self._to_check.add(partition)
        self._schedule_check()

    def proceed(self, partition: int) -> None:
        """Continue the takeover after `JournalEvents.checking`."""
        self._producers[partition].proceed()
        self._to_check.add(partition)
        self._schedule_check()

    def forget_keys(self, partition: int, keys: Sequence[bytes]) -> None:
        time_ms = self._reactor.wall_ms()
        records = [Record(key, None, timestamp=time_ms) for key in keys]
        if self._producers[partition].add(records, None, self._reactor.now()):
            self._to_check.add(partition)
            self._schedule_check()

    def serve(self, partitions: Iterable[int]) -> None:
        """Accept appends to partitions that are loaded."""
        producers = self._producers
        self._serving.update({partition: producers[partition] for partition in partitions if partition in producers})

    def is_idle(self, partitions: Iterable[int]) -> bool:
        return not any(self._producers[p].tokens() for p in partitions if p in self._producers)

    def stop(self, partitions: Iterable[int], code: ErrorCode, reason: str) -> None:
        """Refuse waiting appends, whether or not they were stored."""
        stopped = set(partitions)
        self._to_check -= stopped
        for waiting in self._busy.values():
            waiting -= stopped
        self._under_way.stopped(stopped)
        self._transactions.stopped(stopped)
        for partition in stopped:
            self._serving.pop(partition, None)
        producers = [self._producers.pop(partition) for partition in sorted(stopped & self._producers.keys())]
        for token in [token for producer in producers for token in producer.tokens()]:
            on_behalf_of(self, partial(refuse, token, code, reason))

    def _takeover(self, producer_id: int, producer_epoch: int) -> Record:
        return self.state.takeover(self._owner, self._reactor.wall_ms(), producer_id, producer_epoch)

    def unreachable(self, node_id: int) -> None:
        """Look up the leaders and coordinators on this broker again."""
        self.leaders = {partition: node for partition, node in self.leaders.items() if node != node_id}
        self.coordinators = {partition: node for partition, node in self.coordinators.items() if node != node_id}
        self.check_soon()

    # The loop

    def check_soon(self) -> None:
        """Check all waiting appends, because leaders or channels may have changed."""
        for waiting in self._busy.values():
            self._to_check |= waiting
            waiting.clear()
        self._schedule_check()

    def _schedule_check(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._reactor.call_on_behalf_of(self, self._check)

    def call_soon(self, callback: Callback) -> None:
        self._reactor.call_on_behalf_of(self, callback)

    def failed(self, error: Exception) -> None:
        """Give up all partitions: after an internal error no later append could be trusted."""
        self._notes("callback-failed", error=error)
        self._events.lost(-1, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _check(self) -> None:
        self._is_planned = False
        if self._may_be_late:
            is_late = self._under_way.check(self._channels, self.leaders, self.coordinators)
            self._may_be_late = self._transactions.check() or is_late
            if self._may_be_late:
                self._events.need_view()
        now = self._reactor.now()
        if self.coming and self._waits_for_coming(now):
            return
        produces: dict[int, Produce] = {}  # by leader
        checked = sorted(self._to_check)
        needs_alarm = self._may_be_late or self._alarm_at > now + SILENT_S
        for partition in checked:
            producer = self._producers.get(partition)
            if producer is None:
                continue  # stopped by the outcome of another partition
            if refused := producer.overdue(now):
                self._report(partition, refused)
            is_missing = False
            if producer.transactions.is_active:
                needs_alarm = True
                is_missing = self._transactions.send(partition, producer)
            if not self._request_for(partition, producer, produces, now) and not is_missing:
                self._to_check.discard(partition)
        sent = 0
        for node_id, produce in produces.items():
            self._requested_at = None
            self._produce(node_id, produce)
            sent += len(produce.batches)
        if needs_alarm or sent < len(checked):  # else it rings soon enough for what was sent
            self._set_alarm(checked, now)

    def _waits_for_coming(self, now: float) -> bool:
        """Return True if appends that could go now wait for coming ones (durable/README.md rule 34)."""
        coming = self.coming
        coming.on_end = None
        if not self._to_check:
            return False
        if self._requested_at is None:
            self._requested_at = now
        until = self._requested_at + SHARE_MAX_S
        if now >= until or not coming.is_one_due(self._requested_at, now):
            return False
        coming.on_end = self._schedule_check
        if self._rings_at <= now:
            self._rings_at = until
            self._reactor.call_at(until, self._schedule_check)
        return True

    def _request_for(self, partition: int, producer: StateProducer, produces: dict[int, Produce], now: float) -> bool:
        """Send or collect the partition's next request. False if there is none, or its leader is busy."""
        request_type = producer.wants(now)
        if request_type is None:
            return False
        if request_type is AppendInTransaction:
            return not self._transactions.append(partition, producer)
        node_id = (self.coordinators if request_type is Identify else self.leaders).get(partition, -1)
        if node_id < 0:
            self._events.need_view()
            return True
        if request_type is Append and node_id in self._busy:
            self._busy[node_id].add(partition)
            return False
        produce = produces.get(node_id) if request_type is Append else None
        if produce is None:
            channel = self._channels.get(node_id, self._purposes[request_type])
            if channel is None:
                if self._channels.is_late(node_id, self._purposes[request_type]):
                    self._events.need_view()
                return True
            if request_type is Identify:
                self._under_way.identifies[partition] = node_id
                self._identify(channel, node_id, partition, producer, producer.next_identify())
                return False
            produce = produces[node_id] = Produce(channel, {}, {})
        produce.producers[partition] = producer
        produce.batches[partition] = producer.next_batch(now)
        return False

    def _set_alarm(self, checked: Iterable[int], now: float) -> None:
        """Set the alarm for retries, keep-alives and overdue appends.

        One alarm serves every partition that was checked since it last rang, and may ring too early. Then all
        partitions are checked. While requests are in flight it rings every `SILENT_S`, and is set again only if one of
        them fails, or a keep-alive is due earlier.
        """
        waiting = self._to_check.union(*self._busy.values())
        idle = [self._producers.get(partition) for partition in checked if partition not in waiting]
        deadline = min([producer.next_deadline() for producer in idle if producer is not None], default=inf)
        deadline = max(deadline, now + CHECK_MIN_S)
        if waiting:  # channels, leaders and responses notify the journal; this check is a safeguard
            deadline = min(deadline, now + CHECK_MAX_S)
        if self._busy or self._under_way.identifies or self._transactions.is_busy:
            deadline = min(deadline, now + (CHECK_MAX_S if self._may_be_late else SILENT_S))
        if deadline >= self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = deadline
        self._alarm = self._reactor.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, inf
        self._may_be_late = True
        self._to_check.update(self._producers)
        self._schedule_check()

    # Requests

    def guarded(self, responded: Callable[[R | None], None]) -> Callable[[R | None], None]:
        """Run it on behalf of the journal, so that an internal error does not end the channel."""
        return lambda response: on_behalf_of(self, partial(responded, response))

    def _identify(
        self, channel: Channel, node_id: int, partition: int, producer: StateProducer, identify: Identify
    ) -> None:
        request = producer_messages.init_producer_id(self.state.transactional_id(partition), *identify)
        version = channel.highest(ApiKey.INIT_PRODUCER_ID, producer_messages.INIT_PRODUCER_ID_VERSION_MAX)
        channel.send_request(
            ApiKey.INIT_PRODUCER_ID,
            version,
            request,
            self.guarded(partial(self._identified, node_id, partition, producer)),
        )

    def _identified(
        self, node_id: int, partition: int, producer: StateProducer, response: messages.InitProducerIdResponse | None
    ) -> None:
        if self._producers.get(partition) is not producer:
            return
        self._under_way.identifies.pop(partition, None)
        now = self._reactor.now()
        if response is None:
            forget(self.coordinators, partition, node_id)
            self._report(partition, producer.in_flight(now))
        else:
            code = ErrorCode.of(response.error_code)
            if code in MOVED:
                forget(self.coordinators, partition, node_id)
            elif code in DENIED:
                self._events.denied(partition, code)
            elif code not in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
                self._notes("state-identity-refused", topic=self.state.topic, partition=partition, reason=code.name)
            self._report(partition, producer.identified(code, response.producer_id, response.producer_epoch, now))
            if producer.stage is WriterStage.CHECKING:
                self._events.checking(partition)
        self._to_check.add(partition)
        self._schedule_check()

    def _produce(self, node_id: int, produce: Produce) -> None:
        channel, sent, batches = produce
        if channel.closed:
            self._produced(node_id, sent, None, was_sent=False)
            return
        self._busy[node_id] = set()
        self._under_way.appends[node_id] = sent
        self.appends += 1
        version = channel.highest(_PRODUCE, producer_messages.PRODUCE_VERSION_MAX)
        channel.send_frame(
            self._frames.request(version, batches),
            partial(self._frames.response, version),
            self.guarded(partial(self._produced, node_id, sent)),
        )

    def _produced(
        self, node_id: int, sent: Mapping[int, StateProducer], appended: Appended | None, *, was_sent: bool = True
    ) -> None:
        self._to_check |= self._busy.pop(node_id, set())
        self._under_way.appends.pop(node_id, None)
        now, needs_alarm = self._reactor.now(), False
        for partition, producer in sent.items():
            if self._producers.get(partition) is not producer:
                continue
            if appended is not None and partition in appended:
                code, base_offset = appended[partition]
                if code != NO_ERROR:
                    needs_alarm = True
                    self._append_failed(node_id, partition, producer, code)
                outcomes = producer.appended(code, base_offset, now)
            else:
                needs_alarm = True
                forget(self.leaders, partition, node_id)
                outcomes = producer.in_flight(now) if was_sent else producer.unsent(now)
            self._report(partition, outcomes)
            if producer.wants(now) is not None and self._producers.get(partition) is producer:
                self._to_check.add(partition)
            elif producer.append_by < self._alarm_at or producer.identify_by < self._alarm_at:
                needs_alarm = True
        if self._to_check:
            self._schedule_check()
        if needs_alarm:
            self._set_alarm(sent, now)

    def _append_failed(self, node_id: int, partition: int, producer: StateProducer, code: ErrorCode) -> None:
        if code in MOVED:
            forget(self.leaders, partition, node_id)
        if code in DENIED and producer.stage is WriterStage.TAKING_OVER:
            self._events.denied(partition, code)
        elif not producer.is_before_marker(code):
            self._notes("state-append-failed", topic=self.state.topic, partition=partition, reason=code.name)

    # What transactions need (journal_transactions.TransactionHost)

    def now(self) -> float:
        return self._reactor.now()

    def need_view(self) -> None:
        self._events.need_view()

    def is_current(self, partition: int, producer: StateProducer) -> bool:
        return self._producers.get(partition) is producer

    def settle(self, partition: int, outcomes: Iterable[Outcome]) -> None:
        self._report(partition, outcomes)
        self._to_check.add(partition)
        self._schedule_check()


CHECK_MIN_S, CHECK_MAX_S = 0.01, 0.25
"""Seconds until the next check that no event triggers."""
