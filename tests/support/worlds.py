"""Two worlds: one script of raw share requests against a native broker and against the proxy, with compared responses.

`World` is a script's environment: it creates topics, groups and members and writes every response down with ids
replaced by names, so that the transcripts of two worlds can be compared field by field.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.records import records

from tests.support.blocking_connection import Connection
from tests.support.raw import LIMIT_S, Raw, Topic, until

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
BEFORE_LOCK_S = 25.0
"""Seconds within which an arrival is before the end of Kafka's default lock of 30 s."""

Ack = tuple[Topic, int, int, int, Sequence[int] | int]
"""Topic, partition, first offset, last offset, one type or several."""
Place = tuple[Topic, int]


class World:
    """One side of a comparison: a bootstrap address and separate names."""

    def __init__(self, name: str, bootstrap: str, prefix: str, sasl: tuple[str, str] | None = None) -> None:
        self.name = name
        self.raw = Raw(bootstrap, sasl=sasl)
        self.transcript: list[tuple[str, Any]] = []
        self._prefix = prefix
        self._labels: dict[Any, str] = {bytes(16): "no topic"}
        self._changes = itertools.count()

    def close(self) -> None:
        self.raw.close()

    def label(self, value: Any, name: str) -> Any:
        self._labels[value] = name
        return value

    def topic(self, name: str = "t", partitions: int = 1, **options: Any) -> Topic:
        topic = self.raw.create_topic(f"{self._prefix}-{name}", partitions, **options)
        self.label(topic.topic_id, name)
        self.label(topic.name, name)
        return topic

    def label_topic(self, topic: Topic) -> Topic:
        """Have the topic's id and name written as "t"."""
        self.label(topic.topic_id, "t")
        self.label(topic.name, "t")
        return topic

    def name_of_topic(self, name: str) -> str:
        """Return the name of a topic that does not exist yet."""
        return str(self.label(f"{self._prefix}-{name}", name))

    def group(self, name: str = "g", *, start: str | None = "earliest", **settings: str) -> str:
        """Name a group; settings are its own: lock_ms="2000" is share.record.lock.duration.ms."""
        group = str(self.label(f"{self._prefix}-{name}", name))
        values = {SETTINGS.get(key, key): value for key, value in settings.items()}
        if start is not None:
            values["share.auto.offset.reset"] = start
        if values:
            self.configure(group, values)
        return group

    def configure(self, group: str, values: Mapping[str, str | None]) -> None:
        """Set settings of a group (None takes one back), and wait until they are applied.

        A broker shows a change before it applies it, but applies it before it shows a later one
        (BrokerMetadataPublisher.java).
        """
        self.raw.configure_group(group, values)
        if self.name == "native":
            self.raw.configure_group(f"{group}-later-{next(self._changes)}", {SETTINGS["lock_ms"]: "30000"})

    def member(self, group: str, name: str = "A", topics: Sequence[Topic] = (), node: int | None = None) -> Member:
        """Return a share consumer on new connections; with topics it joins and waits for all their partitions."""
        member = Member(self, group, str(self.label(f"{name}-{self._prefix}"[-36:], name)), node)
        if topics:
            member.join(topics)
        return member

    def note(self, label: str, response: Any) -> Any:
        """Write a response down; returns it as plain values."""
        plain = self.plain(response)
        self.transcript.append((label, plain))
        return plain

    def plain(self, value: Any) -> Any:
        """Return a message as dicts, ids as names, records as (base, last, count) of their batches."""
        if isinstance(value, Message):
            return {
                name: self._field(name, getattr(value, name)) for name in value.FIELDS if name not in _NEVER_COMPARED
            }
        if isinstance(value, dict):
            return {self.plain(key): self.plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(each) for each in value]
        if isinstance(value, memoryview | bytearray):
            value = bytes(value)
        return self._labels.get(value, value) if isinstance(value, str | bytes) else value

    def _field(self, name: str, value: Any) -> Any:
        if name == "records":
            return [
                (batch.base_offset, batch.last_offset, batch.records_count)
                for batch in records.iter_batches(memoryview(value or b""))
            ]
        if name in ("partitions", "responses"):
            return sorted(filter(_tells_something, self.plain(value)), key=_place)
        return self.plain(value)


SETTINGS = {
    "lock_ms": "share.record.lock.duration.ms",
    "session_ms": "share.session.timeout.ms",
    "heartbeat_ms": "share.heartbeat.interval.ms",
    "isolation": "share.isolation.level",
    "deliveries": "share.delivery.count.limit",
    "locks": "share.partition.max.record.locks",
    "renew": "share.renew.acknowledge.enable",
}
_NEVER_COMPARED = (
    "throttle_time_ms",
    "port", "host", "client_host",  # each world has its own
    "error_message", "acknowledge_error_message",  # for people: Kafka leaves many out, and words change by release
)  # fmt: skip


def _tells_something(entry: Any) -> bool:
    """Return True unless an entry only says "nothing here". Such entries depend on the progress of the broker."""
    if not isinstance(entry, dict):
        return True
    if "responses" in entry or "topic_id" in entry:
        return bool(entry.get("partitions", True))
    return any(
        entry.get(name, True) for name in ("records", "acquired_records", "error_code", "acknowledge_error_code")
    )


def _place(entry: Any) -> Any:
    """Return the sort key of an entry: Kafka's order of topics and partitions is that of a hash map."""
    return (str(entry.get("topic_id")), entry.get("partition_index", 0)) if isinstance(entry, dict) else entry


@dataclass
class Response:
    """A response to ShareFetch or ShareAcknowledge, as received and as written down."""

    plain: dict[str, Any]
    message: Any
    took_s: float

    @property
    def error(self) -> int:
        return int(self.plain["error_code"])

    @property
    def lock_ms(self) -> int:
        return int(self.plain["acquisition_lock_timeout_ms"])

    def parts(self) -> Iterator[tuple[bytes, Any]]:
        for topic in self.message.responses:
            for partition in topic.partitions:
                yield bytes(topic.topic_id), partition

    def part(self, topic: Topic, partition: int = 0) -> Any:
        """Return the entry of that partition. None if there is none."""
        entries = [
            each for topic_id, each in self.parts() if (topic_id, each.partition_index) == (topic.topic_id, partition)
        ]
        assert len(entries) <= 1, f"{len(entries)} entries for one partition"
        return entries[0] if entries else None

    def acquired(self, topic: Topic, partition: int = 0) -> list[tuple[int, int, int]]:
        """Return (first offset, last offset, delivery count) of each range. Empty if the partition is not there."""
        part = self.part(topic, partition)
        return [(a.first_offset, a.last_offset, a.delivery_count) for a in part.acquired_records] if part else []

    def code(self, topic: Topic, partition: int = 0) -> int | None:
        part = self.part(topic, partition)
        return None if part is None else int(part.error_code)

    def ack_code(self, topic: Topic, partition: int = 0) -> int | None:
        part = self.part(topic, partition)
        return None if part is None else int(part.acknowledge_error_code)


@dataclass
class Member:
    """One share consumer: heartbeats on one connection, its session with one node on another."""

    world: World
    group: str
    member_id: str
    node: int | None = None
    """The broker of its session; None: the one with the lowest id."""
    epoch: int = 0
    """Next session epoch, by default."""
    member_epoch: int = 0
    assigned: set[tuple[bytes, int]] = field(default_factory=set)
    _connection: Connection | None = None
    _known: set[tuple[bytes, int]] = field(default_factory=set)

    # Membership

    def join(self, topics: Sequence[Topic], limit_s: float = LIMIT_S) -> None:
        """Join and heartbeat until all partitions of the topics are assigned to it."""
        self.heartbeat(0, topics=[topic.name for topic in topics], silent=True)
        expected = {(topic.topic_id, index) for topic in topics for index in topic.leaders}

        def complete() -> bool:
            if not expected <= self.assigned:
                self.heartbeat(silent=True)
            return expected <= self.assigned

        until(complete, f"the assignment of {self.member_id}", limit_s)

    def heartbeat(
        self,
        epoch: int | None = None,
        *,
        topics: Sequence[str] | None = None,
        rack: str | None = None,
        silent: bool = False,
        follow: bool = True,
    ) -> Any:
        """Send a heartbeat; `silent` keeps it out of the transcript. Returns the message."""
        response = self.world.raw.send_request(
            "ShareGroupHeartbeat", 1, on=self.world.raw.on_coordinator(self.group), group_id=self.group,
            member_id=self.member_id, member_epoch=self.member_epoch if epoch is None else epoch, rack_id=rack,
            subscribed_topic_names=None if topics is None else list(topics),
        )  # fmt: skip
        if response.error_code == 0 and follow:
            self.member_epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {
                    (bytes(each.topic_id), index)
                    for each in response.assignment.topic_partitions
                    for index in each.partitions
                }
        if not silent:
            self.world.note(f"heartbeat {self.world.plain(self.member_id)}", response)
        return response

    # Records

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            brokers = self.world.raw.brokers()
            self._connection = self.world.raw.connect(brokers[min(brokers) if self.node is None else self.node])
        return self._connection

    def disconnect(self) -> None:
        """Close the connection of the session; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def fetch(self, *places: Topic | Place, silent: bool = False, **options: Any) -> Response:
        """Send ShareFetch. Options: epoch, acks, forget, version, mode, renew, wait_ms, min_bytes, max_bytes, records,
        batch; a renewing one requests nothing by default.
        """
        renew = options.get("renew", False)
        values: dict[str, Any] = {
            "max_wait_ms": options.get("wait_ms", 0 if renew else 300),
            "min_bytes": options.get("min_bytes", 0 if renew else 1),
            "max_bytes": options.get("max_bytes", 0 if renew else 1 << 20),
            "max_records": options.get("records", 0 if renew else 500),
            "batch_size": options.get("batch", 0 if renew else 500),
            "forgotten_topics_data": _forgotten(options.get("forget", ())),
        }
        if options.get("version", 2) >= 2:
            values |= {"share_acquire_mode": options.get("mode", BATCH_OPTIMIZED), "is_renew_ack": renew}
        return self._share("ShareFetch", places, silent, options, values)

    def acknowledge(self, *acks: Ack, silent: bool = False, **options: Any) -> Response:
        """Send ShareAcknowledge. Options: epoch, version, renew."""
        values = {"is_renew_ack": options.get("renew", False)} if options.get("version", 2) >= 2 else {}
        return self._share("ShareAcknowledge", (), silent, options | {"acks": acks}, values)

    def _share(
        self,
        api: str,
        places: Sequence[Topic | Place],
        silent: bool,
        options: Mapping[str, Any],
        values: Mapping[str, Any],
    ) -> Response:
        epoch, began = options.get("epoch", self.epoch), time.monotonic()
        topics = _topics(places, options.get("acks", ()))
        message = self.world.raw.send_request(
            api, options.get("version", 2), on=self.connection, group_id=options.get("group", self.group),
            member_id=options.get("member_id", self.member_id), share_session_epoch=epoch, topics=topics, **values,
        )  # fmt: skip
        response = Response(self.world.plain(message), message, time.monotonic() - began)
        if response.error == 0:
            self.epoch = 0 if epoch == -1 else 1 if epoch == 0x7FFFFFFF else epoch + 1
        if not silent:
            self.world.transcript.append((f"{api} {self.world.plain(self.member_id)}", response.plain))
        return response

    def attend(self, *places: Topic | Place) -> None:
        """Open a share session and get nothing.

        With the last session of a group a broker forgets the state it holds in memory, and reads again what is stored:
        a delivery that ends at that moment may not be, and then does not count. Where another session lives it counts.
        """
        assert not _acquired(self.fetch(*places, silent=True, wait_ms=0))

    def take(self, *places: Topic | Place, limit_s: float = BEFORE_LOCK_S, **options: Any) -> Response:
        """Fetch until something is acquired; only that response is written down."""
        return self.fetch_until(lambda response: bool(_acquired(response)), *places, limit_s=limit_s, **options)

    def fetch_until(
        self, enough: Callable[[Response], bool], *places: Topic | Place, limit_s: float = BEFORE_LOCK_S, **options: Any
    ) -> Response:
        """Repeat the fetch until a response is enough; only that one is written down."""
        end = time.monotonic() + limit_s
        silent = options.pop("silent", False)
        while True:
            response = self.fetch(*places, silent=True, **options)
            if enough(response):
                if not silent:
                    self.world.transcript.append((f"ShareFetch {self.world.plain(self.member_id)}", response.plain))
                return response
            assert response.error == 0, response.plain
            assert time.monotonic() < end, f"waited {limit_s:.0f} s, last came {response.plain}"
            options.pop("epoch", None)  # only the first opens the session
            options.pop("acks", None)

    def take_all(
        self, count: int, *places: Topic | Place, limit_s: float = BEFORE_LOCK_S
    ) -> dict[tuple[str, int], Any]:
        """Fetch until this many records are acquired; write down all of them together, by partition.

        What adjoins is one span: a record that was produced just now may come with the others or after them.
        """
        got: dict[tuple[str, int], Any] = {}
        end = time.monotonic() + limit_s
        while sum(last - first + 1 for spans in got.values() for first, last, _ in spans) < count:
            assert time.monotonic() < end, f"waited {limit_s:.0f} s, got {got}"
            response = self.fetch(*places, silent=True)
            assert response.error == 0, response.plain
            for topic_id, part in response.parts():
                key = (self.world.plain(topic_id), part.partition_index)
                assert part.error_code == 0, response.plain
                if spans := [(a.first_offset, a.last_offset, a.delivery_count) for a in part.acquired_records]:
                    got[key] = _joined([*got.get(key, ()), *spans])
        self.world.note(f"acquired by {self.world.plain(self.member_id)}", sorted(got.items()))
        return got


def _joined(spans: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (first, last, delivery count), with adjacent ranges of the same count merged."""
    joined: list[tuple[int, int, int]] = []
    for first, last, count in spans:
        if joined and (joined[-1][1] + 1, joined[-1][2]) == (first, count):
            first = joined.pop()[0]
        joined.append((first, last, count))
    return joined


def _acquired(response: Response) -> list[Any]:
    return [each for _, part in response.parts() for each in part.acquired_records]


def _topics(places: Sequence[Topic | Place], acks: Sequence[Ack]) -> list[dict[str, Any]]:
    """Return the topics of a share request. Acknowledgements of a partition stay in the order given."""
    requested: dict[bytes, dict[int, list[dict[str, Any]]]] = {}
    for place in places:
        topic, indexes = (place, list(place.leaders)) if isinstance(place, Topic) else (place[0], [place[1]])
        for index in indexes:
            requested.setdefault(topic.topic_id, {}).setdefault(index, [])
    for topic, index, first, last, kinds in acks:
        types = [kinds] if isinstance(kinds, int) else list(kinds)
        batch = {"first_offset": first, "last_offset": last, "acknowledge_types": types}
        requested.setdefault(topic.topic_id, {}).setdefault(index, []).append(batch)
    return [
        {
            "topic_id": topic_id,
            "partitions": [
                {"partition_index": index, "acknowledgement_batches": batches} for index, batches in indexes.items()
            ],
        }
        for topic_id, indexes in requested.items()
    ]


def _forgotten(places: Sequence[Place]) -> list[dict[str, Any]]:
    return [{"topic_id": topic.topic_id, "partitions": [index]} for topic, index in places]


def warm_up(bootstrap: str, sasl: tuple[str, str] | None = None) -> None:
    """Let a native cluster make and load its topic of share state: groups that come earlier wait for long."""
    world = World("native", bootstrap, f"warm-up-{time.monotonic_ns()}", sasl)
    try:
        topic = world.topic()
        for attempt in range(12):
            try:
                world.member(world.group(f"g{attempt}")).join([topic], limit_s=2 + attempt)
            except TimeoutError:
                continue
            return
        raise TimeoutError("the native cluster assigned nothing to any share group")
    finally:
        world.close()
