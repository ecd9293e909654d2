"""Names, headers, partitions and order of dead letters: a native 4.4.0 broker, and the proxy in front of 3.9.1."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record

from tests.support.raw import GROUP_RESOURCE, Topic, until
from tests.support.worlds import ACCEPT, GAP, REJECT, RELEASE, Member, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

LETTERS = 3
"""Partitions of the topic for dead letters."""
TOPIC, COPIES = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
ENABLED = "errors.deadletterqueue.group.enable"
SMALL, LARGE = 2_000, b"v" * 3_000
"""Limit of a batch in the topic for dead letters, and a value that is larger."""
QUIET_S = 1.0
INVALID_CONFIG = 40
Letter = tuple[dict[str, str], bytes | None, bytes | None]
Letters = dict[int, list[Letter]]


@dataclass
class Side:
    """A world, and the settings of its topics for dead letters."""

    world: World
    prefix: str
    allowed: dict[str, str]

    def letters_topic(self, **settings: str) -> Topic:
        values = self.allowed | {name.replace("_", "."): value for name, value in settings.items()}
        return self.world.raw.create_topic(f"dlq.{self.prefix}", LETTERS, values)

    def source(self, partitions: int, count: int, value: bytes = b"v") -> Topic:
        topic = self.world.topic("source", partitions)
        for partition in range(partitions):
            batch_records = [
                Record(b"k%d" % at, value, (("trace", b"1"),), timestamp=1_000 + at, offset=at) for at in range(count)
            ]
            self.world.raw.append(topic, records.build_batch(0, batch_records), partition)
        return topic

    def member(self, letters: Topic, source: Topic, **settings: str) -> Member:
        group_settings = {TOPIC: letters.name} | {name.replace("_", "."): value for name, value in settings.items()}
        return self.world.member(self.world.group(start="earliest", **group_settings), topics=[source])

    def settled_letters(self, letters: Topic, expected: int) -> Letters:
        """Return the dead letters by partition, once no more were added for QUIET_S."""
        until(lambda: sum(map(len, self._read(letters).values())) >= expected, f"{expected} dead letters")
        time.sleep(QUIET_S)
        return self._read(letters)

    def _read(self, letters: Topic) -> Letters:
        return {partition: list(self._of(letters, partition)) for partition in range(LETTERS)}

    def _of(self, letters: Topic, partition: int) -> Iterator[Letter]:
        data = self.world.raw.read(letters, partition)
        now = time.time() * 1000
        for batch in records.iter_batches(data):
            for record in () if batch.is_control else records.decode_records(data[batch.position : batch.end]):
                assert now - 300_000 < record.timestamp <= now
                headers = {
                    name.removeprefix("__dlq.errors."): (value or b"").decode() for name, value in record.headers
                }
                yield headers, _bytes(record.key), _bytes(record.value)


def _bytes(value: bytes | None) -> bytes | None:
    return None if value is None else bytes(value)


@pytest.fixture
def sides(kafka_44: Cluster, proxy_39_quick: Front, fresh: Callable[[str], str]) -> Iterator[list[Side]]:
    prefix = fresh("letters")  # names are equal, so that the headers are
    bootstraps = {"native": kafka_44.bootstrap, "proxy": proxy_39_quick.bootstrap}
    both_sides = [
        Side(World(name, bootstrap, prefix), prefix, {ENABLED: "true"} if name == "native" else {})
        for name, bootstrap in bootstraps.items()
    ]
    yield both_sides
    for side in both_sides:
        side.world.close()


def equal(sides: list[Side], script: Callable[[Side], Letters]) -> Letters:
    """Return what both sides found."""
    native, proxy = map(script, sides)
    assert proxy == native
    return native


def test_partition_is_that_of_the_source_modulo_and_order_that_of_rejections(sides: list[Side]) -> None:
    def script(side: Side) -> Letters:
        letters, source = side.letters_topic(), side.source(5, 6)
        member = side.member(letters, source)
        member.take_all(30, source)
        expected = 0
        for partition in range(5):
            for first, last in ((4, 4), (0, 1), (2, 3)):
                member.acknowledge((source, partition, first, last, REJECT), silent=True)
                expected += last - first + 1
                until(
                    lambda expected=expected: sum(map(len, side._read(letters).values())) == expected,
                    f"letter {expected}",
                )
            member.acknowledge((source, partition, 5, 5, ACCEPT), silent=True)
        return side.settled_letters(letters, 25)

    by_partition = equal(sides, script)
    assert [
        [(each["partition"], each["offset"]) for each, _, _ in by_partition[number]] for number in range(LETTERS)
    ] == [
        [(str(partition), str(offset)) for partition in sources for offset in (4, 0, 1, 2, 3)]
        for sources in ((0, 3), (1, 4), (2,))
    ]


def test_one_request_with_every_type_yields_a_letter_for_each_reject(sides: list[Side]) -> None:
    def script(side: Side) -> Letters:
        letters, source = side.letters_topic(), side.source(1, 6)
        member = side.member(letters, source)
        member.take_all(6, source)
        member.acknowledge((source, 0, 0, 5, [REJECT, ACCEPT, GAP, REJECT, ACCEPT, REJECT]), silent=True)
        return side.settled_letters(letters, 3)

    by_partition = equal(sides, script)
    assert [(each["offset"], key, value) for each, key, value in by_partition[0]] == [
        (offset, None, None) for offset in ("0", "3", "5")
    ]
    assert set(by_partition[0][0][0]) == {"topic", "partition", "offset", "group", "delivery.count", "message"}


def test_used_up_deliveries_by_release_and_by_expired_lock(sides: list[Side]) -> None:
    def script(side: Side) -> Letters:
        letters, source = side.letters_topic(), side.source(1, 2)
        settings = {"share.delivery.count.limit": "2", "share.record.lock.duration.ms": "4000"}
        member = side.member(letters, source, **settings)
        for last in (False, True):
            member.take_all(2, source)
            member.acknowledge((source, 0, 0, 0, RELEASE), silent=True)
            if not last:
                member.acknowledge((source, 0, 1, 1, RELEASE), silent=True)
        return side.settled_letters(letters, 2)

    by_partition = equal(sides, script)
    assert [(each["offset"], each["delivery.count"]) for each, _, _ in by_partition[0]] == [("0", "2"), ("1", "2")]


def test_copied_records_have_key_and_value_and_no_headers_of_the_source(sides: list[Side]) -> None:
    def script(side: Side) -> Letters:
        letters, source = side.letters_topic(), side.source(1, 3)
        member = side.member(letters, source, **{COPIES: "true"})
        member.take_all(3, source)
        member.acknowledge((source, 0, 0, 2, REJECT), silent=True)
        return side.settled_letters(letters, 3)

    by_partition = equal(sides, script)
    assert [(key, value) for _, key, value in by_partition[0]] == [(b"k0", b"v"), (b"k1", b"v"), (b"k2", b"v")]
    assert all("trace" not in headers for headers, _, _ in by_partition[0])


def test_record_that_is_too_large_for_the_topic_becomes_a_letter_without_key_and_value(sides: list[Side]) -> None:
    def script(side: Side) -> Letters:
        letters, source = side.letters_topic(max_message_bytes=str(SMALL)), side.source(1, 2, LARGE)
        member = side.member(letters, source, **{COPIES: "true"})
        member.take_all(2, source)
        for offset in (0, 1):
            member.acknowledge((source, 0, offset, offset, REJECT), silent=True)
            until(lambda expected=offset + 1: len(side._read(letters)[0]) == expected, f"letter {offset}")
        return side.settled_letters(letters, 2)

    by_partition = equal(sides, script)
    assert [(each["offset"], key, value) for each, key, value in by_partition[0]] == [
        ("0", None, None),
        ("1", None, None),
    ]


@pytest.mark.parametrize("name", ["__letters", "a b", "x" * 250], ids=["internal", "space", "long"])
def test_refused_names(sides: list[Side], name: str) -> None:
    """The proxy refuses also what no topic can be named. A broker accepts it, and loses the records."""

    def code(side: Side) -> int:
        group = side.world.group()
        return int(side.world.raw.try_configure(GROUP_RESOURCE, group, {TOPIC: name}).error_code)

    native, proxy = map(code, sides)
    assert proxy == INVALID_CONFIG
    assert native == (INVALID_CONFIG if name.startswith("__") else 0)
