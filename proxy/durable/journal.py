"""A state in a topic of the cluster: a Journal over one writer per partition.

Theory of operation. `durable.state_producer` decides what is sent and what an answer means; this sends it. An append
asked for in one turn of the loop goes out at the end of that turn, together with all others; one Produce is on its way
to each leader at a time and carries everything that waits for any partition there. All of it is plain calls of the
loop. Which broker leads a partition, or coordinates a transactional id, is found by somebody else (`need_view`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Generic, TypeVar

from proxy.brokers.channel import Channel
from proxy.brokers.channels import BrokerChannels
from proxy.brokers.replaced import SILENT_S
from proxy.durable.coming_appends import SHARE_MAX_S, ComingAppends
from proxy.durable.described_state import DescribedState
from proxy.durable.interfaces import JournalRefused
from proxy.durable.state_producer import (
    BATCH_BYTES_MAX,
    DENIED,
    IDENTITY_S,
    KEEP_ALIVE_S,
    Append,
    Identify,
    Lost,
    Outcome,
    Refused,
    StateProducer,
    Stored,
    TakenOver,
    WentBack,
    WriterStage,
)
from proxy.durable.under_way import MOVED, UnderWay, forget
from proxy.loop.interfaces import Notes, Timer
from proxy.loop.promise import Callback, Promise, on_behalf_of
from proxy.loop.reactor import Reactor
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import NO_ERROR, ErrorCode, LocalProtocolError
from proxy.wire.messages import Message
from proxy.wire.records import Record

PRODUCE_VERSION_MAX = 11
"""From 12 on a produce may begin a transaction, from 13 on topics go by id; nothing of that is wanted here."""
INIT_PRODUCER_ID_VERSION_MAX = 4
REPLICAS_MS = 5_000
"""How long a leader waits for its replicas; then the outcome is unknown."""
TRANSACTION_MS = 60_000
"""Must be named; there are no transactions."""
ALL_REPLICAS = -1

K = TypeVar("K")
R = TypeVar("R", bound=Message)
"""The class of an answer."""


class TopicJournal(Generic[K]):
    """See interfaces.Journal. Refuses everything until `serve`, and again after `stop`."""

    def __init__(
        self,
        state: DescribedState[K],
        reactor: Reactor,
        notes: Notes,
        owner: str,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        identity_s: float = IDENTITY_S,
    ) -> None:
        self.state = state
        self.links: BrokerChannels | None = None
        """Set before anything is to be taken over."""
        self.leaders: dict[int, int] = {}
        """Partition -> node id."""
        self.coordinators: dict[int, int] = {}
        """Partition -> node id of the coordinator of its transactional id."""
        self.need_view: Callable[[], None] = lambda: None
        """Called when a partition has no leader, or another one than was believed."""
        self.on_taken_over: Callable[[int, TakenOver], None] = lambda _partition, _outcome: None
        self.on_checking: Callable[[int], None] = lambda _partition: None
        self.on_lost: Callable[[int, ErrorCode], None] = lambda _partition, _code: None
        self.on_denied: Callable[[int, ErrorCode], None] = lambda _partition, _code: None
        """Called with a partition that the proxy's own identity may not take over."""
        self.on_went_back: Callable[[int], None] = lambda _partition: None
        """Called with a partition whose log is not the one that was taken over: nothing is appended to it any more."""
        self.coming = ComingAppends()
        """See interfaces.Journal."""
        self.appends = 0
        """Append requests sent."""
        self._message_bytes = BATCH_BYTES_MAX
        self._serving: set[int] = set()
        """Partitions that take appends."""
        # A broker answers the requests of one connection in order: states do not wait for each other's appends.
        self._purposes = {wanted: f"{wanted.__name__} {state.topic}" for wanted in (Identify, Append)}
        self._reactor = reactor
        self._notes = notes
        self._owner = owner
        self._keep_alive_s = keep_alive_s
        self._identity_s = identity_s
        self._producers: dict[int, StateProducer] = {}
        self._eager: set[int] = set()
        """Partitions that may have something to send."""
        self._is_planned = False
        self._alarm: Timer | None = None
        self._alarm_at = inf
        self._busy: dict[int, set[int]] = {}
        """Leaders with a Produce on its way -> partitions that wait for its answer to append."""
        self._under_way = UnderWay(self._purposes)
        self._doubts = False
        """A broker may be late with an answer."""
        self._asked_at: float | None = None
        """When the first append was asked for that waits for others; None: none does."""
        self._rings_at = -inf
        """When the alarm of such a wait rings."""

    # The port

    def append(self, records: Sequence[tuple[K, bytes | None]]) -> Promise[None]:
        """See interfaces.Journal; all records belong to one partition."""
        promise: Promise[None] = Promise()
        state = self.state
        if not records:
            promise.set(None)
            return promise
        partition = state.partition_of(records[0][0])
        for key, _ in records[1:]:
            if state.partition_of(key) != partition:
                raise LocalProtocolError(f"one append to several partitions of {state.topic}")
        producer = self._producers.get(partition)
        if partition not in self._serving or producer is None:
            promise.fail(JournalRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{state.name} is not loaded"))
            return promise
        time_ms = self._reactor.wall_ms()
        encode_key = state.encode_key
        encoded = [Record(encode_key(key), value, (), time_ms) for key, value in records]
        if producer.add(encoded, promise, self._reactor.now()):
            self._eager.add(partition)
            self._plan()
        else:
            promise.fail(JournalRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"too much waits for topic {state.topic}"))
        return promise

    # Ownership

    def keep_alive(self, keep_alive_s: float, identity_s: float) -> None:
        """How often everything is written to from now on, and the writers' identities are renewed."""
        self._keep_alive_s, self._identity_s = keep_alive_s, identity_s
        for producer in self._producers.values():
            producer.renew_every(keep_alive_s, identity_s, self._reactor.now())
        self._eager.update(self._producers)
        self._plan()

    def limit_batches(self, message_bytes: int) -> None:
        """The topic takes record batches of so many bytes (`max.message.bytes`)."""
        self._message_bytes = message_bytes
        for producer in self._producers.values():
            producer.limit_batches(message_bytes)

    def take_over(self, partitions: Iterable[int]) -> None:
        """Begin to own these; `on_taken_over` tells of each."""
        for partition in partitions:
            self._serving.discard(partition)
            producer = self._producers[partition] = StateProducer(
                self._takeover, self.state.keep_alive(), self._keep_alive_s, self._identity_s
            )
            producer.limit_batches(self._message_bytes)
            self._eager.add(partition)
        self._plan()

    def proceed(self, partition: int) -> None:
        """Nobody else can be writing to it (`on_checking`): go on with taking it over."""
        self._producers[partition].proceed()
        self._eager.add(partition)
        self._plan()

    def forget_keys(self, partition: int, keys: Sequence[bytes]) -> None:
        """Delete records that nothing depends on; nobody waits for it."""
        time_ms = self._reactor.wall_ms()
        records = [Record(key, None, timestamp=time_ms) for key in keys]
        if self._producers[partition].add(records, None, self._reactor.now()):
            self._eager.add(partition)
            self._plan()

    def serve(self, partitions: Iterable[int]) -> None:
        """These are loaded: take appends."""
        self._serving.update(partitions)

    def is_idle(self, partitions: Iterable[int]) -> bool:
        """Whether nothing is to be stored, or being stored, in any of these."""
        return not any(self._producers[p].tokens() for p in partitions if p in self._producers)

    @property
    def owned(self) -> int:
        """Partitions that take appends."""
        return len(self._serving)

    def stop(self, partitions: Iterable[int], code: ErrorCode, reason: str) -> None:
        """Own these no more; whoever waits is refused, whatever became of what was sent."""
        wanted = set(partitions)
        self._serving -= wanted
        self._eager -= wanted
        for behind in self._busy.values():
            behind -= wanted
        self._under_way.stopped(wanted)
        producers = [self._producers.pop(partition) for partition in sorted(wanted & self._producers.keys())]
        tokens = [token for producer in producers for token in producer.tokens()]
        for token in tokens:
            on_behalf_of(self, partial(_refuse, token, code, reason))

    def _takeover(self, producer_id: int, producer_epoch: int) -> Record:
        return self.state.takeover(self._owner, self._reactor.wall_ms(), producer_id, producer_epoch)

    def unreachable(self, node_id: int) -> None:
        """A broker cannot be reached: what it led or coordinated is looked for anew."""
        self.leaders = {partition: node for partition, node in self.leaders.items() if node != node_id}
        self.coordinators = {partition: node for partition, node in self.coordinators.items() if node != node_id}
        self.look_soon()

    # The loop

    def look_soon(self) -> None:
        """Leaders or channels may be others: whatever waits is looked at, at the end of this turn."""
        for behind in self._busy.values():
            self._eager |= behind
            behind.clear()
        self._plan()

    def _plan(self) -> None:
        """Something may be sent: look at the end of this turn."""
        if not self._is_planned:
            self._is_planned = True
            self._reactor.call_on_behalf_of(self, self._look)

    def call_soon(self, callback: Callback) -> None:
        """See CallbackOwner."""
        self._reactor.call_on_behalf_of(self, callback)

    def failed(self, error: Exception) -> None:
        """A fault of ours: nothing that is stored from here on could be trusted (see CallbackOwner)."""
        self._notes("callback-failed", error=error)
        self.on_lost(-1, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _look(self) -> None:
        self._is_planned = False
        if self._doubts and self.links is not None:
            self._doubts = self._under_way.look(self.links, self.leaders, self.coordinators)
            if self._doubts:
                self.need_view()
        now = self._reactor.now()
        if self._waits_for_others(now):
            return
        appends: dict[int, dict[int, Append]] = {}
        looked_at = sorted(self._eager)
        for partition in looked_at:
            producer = self._producers.get(partition)
            if producer is None:
                continue  # stopped by what was told of another
            refused = producer.overdue(now)
            if refused:
                self._tell(partition, refused)
            if not self._ask_for(partition, producer, appends, now):
                self._eager.discard(partition)
        if appends:
            self._asked_at = None
        for node_id, batches in appends.items():
            self._produce(node_id, batches)
        self._set_alarm(looked_at, now)

    def _waits_for_others(self, now: float) -> bool:
        """Whether appends that could go now wait for those that are coming (durable/README.md rule 34).

        Then it is looked again when one of these is over, or in SHARE_MAX_S at the latest.
        """
        coming = self.coming
        coming.on_end = None
        if not coming or not self._eager:
            return False
        if self._asked_at is None:
            self._asked_at = now
        until = self._asked_at + SHARE_MAX_S
        if now >= until or not coming.is_one_due(self._asked_at, now):
            return False
        coming.on_end = self._plan
        if self._rings_at <= now:
            self._rings_at = until
            self._reactor.call_at(until, self._plan)
        return True

    def _ask_for(
        self, partition: int, producer: StateProducer, appends: dict[int, dict[int, Append]], now: float
    ) -> bool:
        """Send or collect what the partition wants; False when it wants nothing now, or its leader is busy."""
        wanted = producer.wants(now)
        if wanted is None:
            return False
        where = self.coordinators if wanted is Identify else self.leaders
        node_id = where.get(partition, -1)
        if node_id < 0 or self.links is None:
            self.need_view()
            return True
        if wanted is Append and node_id in self._busy:
            self._busy[node_id].add(partition)
            return False
        if wanted is Append and node_id in appends:  # its channel takes this one, too
            channel = None
        else:
            channel = self.links.get(node_id, self._purposes[wanted])
            if channel is None:
                if self.links.is_late(node_id, self._purposes[wanted]):
                    self.need_view()
                return True
        request = producer.next_request(now)
        if isinstance(request, Append):
            appends.setdefault(node_id, {})[partition] = request
        elif isinstance(request, Identify) and channel is not None:
            self._under_way.identifies[partition] = node_id
            self._identify(channel, node_id, partition, producer, request)
        return False

    def _set_alarm(self, looked_at: Iterable[int], now: float) -> None:
        """Retries, keep-alives and whatever waits too long.

        The alarm stands for every partition that was looked at since it rang last. What it was set for has often
        happened by then: it may ring too early, once for all of them, and is set anew for each when it does.
        """
        waiting = self._eager.union(*self._busy.values())
        idle = [self._producers.get(partition) for partition in looked_at if partition not in waiting]
        deadline = min([producer.next_deadline() for producer in idle if producer is not None], default=inf)
        deadline = max(deadline, now + LOOK_MIN_S)
        if waiting:  # they wait for a channel, a leader, or an answer: all of that is told; this is to be sure
            deadline = min(deadline, now + LOOK_MAX_S)
        if self._busy or self._under_way.identifies:
            deadline = min(deadline, now + (LOOK_MAX_S if self._doubts else SILENT_S))
        if deadline >= self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = deadline
        self._alarm = self._reactor.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, inf
        self._doubts = True
        self._eager.update(self._producers)
        self._plan()

    # Requests

    def _mine(self, answered: Callable[[R | None], None]) -> Callable[[R | None], None]:
        """The same, on behalf of the journal: the channel that calls it does not end with a fault of ours."""
        return lambda answer: on_behalf_of(self, partial(answered, answer))

    def _identify(
        self, channel: Channel, node_id: int, partition: int, producer: StateProducer, wanted: Identify
    ) -> None:
        request = messages.InitProducerIdRequest(
            transactional_id=self.state.transactional_id(partition),
            transaction_timeout_ms=TRANSACTION_MS,
            producer_id=wanted.producer_id,
            producer_epoch=wanted.producer_epoch,
        )
        version = channel.highest(ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION_MAX)
        channel.ask(
            ApiKey.INIT_PRODUCER_ID,
            version,
            request,
            self._mine(partial(self._identified, node_id, partition, producer)),
        )

    def _identified(
        self, node_id: int, partition: int, producer: StateProducer, answer: messages.InitProducerIdResponse | None
    ) -> None:
        if self._producers.get(partition) is not producer:
            return
        self._under_way.identifies.pop(partition, None)
        now = self._reactor.now()
        if answer is None:
            forget(self.coordinators, partition, node_id)
            self._tell(partition, producer.unanswered(now))
        else:
            code = ErrorCode.of(answer.error_code)
            if code in MOVED:
                forget(self.coordinators, partition, node_id)
            elif code in DENIED:
                self.on_denied(partition, code)
            elif code != ErrorCode.NONE:
                self._notes("state-identity-refused", topic=self.state.topic, partition=partition, reason=code.name)
            self._tell(partition, producer.identified(code, answer.producer_id, answer.producer_epoch, now))
            if producer.stage is WriterStage.CHECKING:
                self.on_checking(partition)
        self._eager.add(partition)
        self._plan()

    def _produce(self, node_id: int, appends: Mapping[int, Append]) -> None:
        assert self.links is not None  # noqa: S101  # whoever collected them had a channel
        channel = self.links.get(node_id, self._purposes[Append])
        sent = {partition: self._producers[partition] for partition in appends}
        if channel is None:
            self._produced(node_id, sent, None, was_sent=False)
            return
        request = messages.ProduceRequest
        data = [request.PartitionProduceData(index=p, records=append.batch) for p, append in appends.items()]
        message = request(
            acks=ALL_REPLICAS,
            timeout_ms=REPLICAS_MS,
            topic_data=[request.TopicProduceData(name=self.state.topic, partition_data=data)],
        )
        self._busy[node_id] = set()
        self._under_way.appends[node_id] = sent
        self.appends += 1
        version = channel.highest(ApiKey.PRODUCE, PRODUCE_VERSION_MAX)
        channel.ask(ApiKey.PRODUCE, version, message, self._mine(partial(self._produced, node_id, sent)))

    def _produced(
        self,
        node_id: int,
        sent: Mapping[int, StateProducer],
        answer: messages.ProduceResponse | None,
        *,
        was_sent: bool = True,
    ) -> None:
        self._eager |= self._busy.pop(node_id, set())
        self._under_way.appends.pop(node_id, None)
        now = self._reactor.now()
        told = _by_partition(answer)
        for partition, producer in sent.items():
            if self._producers.get(partition) is not producer:
                continue
            entry = told.get(partition)
            if entry is not None:
                code = ErrorCode.of(entry.error_code)
                if code != NO_ERROR:
                    self._append_failed(node_id, partition, producer, code)
                outcomes = producer.appended(code, entry.base_offset, now)
            else:
                forget(self.leaders, partition, node_id)
                outcomes = producer.unanswered(now) if was_sent else producer.unsent(now)
            self._tell(partition, outcomes)
        self._go_on(sent, now)

    def _append_failed(self, node_id: int, partition: int, producer: StateProducer, code: ErrorCode) -> None:
        if code in MOVED:
            forget(self.leaders, partition, node_id)
        if code in DENIED and producer.stage is WriterStage.TAKING_OVER:
            self.on_denied(partition, code)
        else:
            self._notes("state-append-failed", topic=self.state.topic, partition=partition, reason=code.name)

    def _go_on(self, answered: Iterable[int], now: float) -> None:
        """Look again if there is more to send, to these partitions or to others that waited for their leader."""
        for partition in answered:
            producer = self._producers.get(partition)
            if producer is not None and producer.wants(now) is not None:
                self._eager.add(partition)
        if self._eager:
            self._plan()
        self._set_alarm(answered, now)

    def _tell(self, partition: int, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Stored):
                if isinstance(outcome.token, Promise):
                    outcome.token.set(None)
            elif isinstance(outcome, Refused):
                _refuse(outcome.token, outcome.code, f"topic {self.state.topic} refuses it")
            elif isinstance(outcome, TakenOver):
                self.on_taken_over(partition, outcome)
            elif isinstance(outcome, Lost):
                self.on_lost(partition, outcome.code)
            elif isinstance(outcome, WentBack):
                self.on_went_back(partition)


LOOK_MIN_S, LOOK_MAX_S = 0.01, 0.25
"""Time between two looks that nothing but time brings about."""


def _refuse(token: object, code: ErrorCode, reason: str) -> None:
    if isinstance(token, Promise):
        token.fail(JournalRefused(code, reason))


def _by_partition(
    answer: messages.ProduceResponse | None,
) -> dict[int, messages.ProduceResponse.PartitionProduceResponse]:
    topics = [] if answer is None else answer.responses
    return {entry.index: entry for topic in topics for entry in topic.partition_responses}
