"""The command `dead-letters` at real brokers: what was written by any proxy, or by Kafka 4.4 itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kafka_share_proxy.app import cli
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.sharegroups.dead_letters.letter_records import LetterSource, letter_of
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetter
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.fetched_records import fetched_records
from kafka_share_proxy.wire.records.records import Record
from typer.testing import CliRunner

from tests.support.brokers import QUICK, Running
from tests.support.raw import Raw, Topic, until
from tests.support.worlds import World, warm_up

pytestmark = pytest.mark.broker

Fresh = Callable[[str], str]
runner = CliRunner()
WRITTEN_MS = int(time.time() * 1000)
KILLED = """
import os, sys
from kafka_share_proxy.app import cli
from kafka_share_proxy.brokers.committing_producer import CommittingProducer
name, after = sys.argv[1].split(":")
whole = getattr(CommittingProducer, name)
async def killed(self, *arguments):
    if after == "after":
        await whole(self, *arguments)
    os._exit(9)
setattr(CommittingProducer, name, killed)
sys.argv[1:2] = []
cli.main()
"""


def letters(group: str, topic: Topic, offsets: Sequence[int], *, copies: bool = True, rejected: bool = True) -> bytes:
    """Return a batch of dead letters."""
    letter_records = []
    for offset in offsets:
        record = Record(b"key %d" % offset, b"value %d" % offset) if copies else None
        letter = DeadLetter(offset, 2, is_rejected=rejected)
        source = LetterSource(group, topic.name, 0)
        letter_records.append(letter_of(source, letter, record, now_ms=WRITTEN_MS, copies_headers=False))
    return records.build_batch(0, letter_records)


def values(raw: Raw, topic: Topic, partition: int = 0) -> list[bytes | None]:
    """Return the committed values of a partition of at most a mebibyte."""
    expected = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    entry = raw.send_request(
        "Fetch", 12, on=raw.kept(raw.node(topic.leaders[partition])), max_wait_ms=0, min_bytes=0, session_epoch=-1,
        isolation_level=1, topics=[{"topic": topic.name, "partitions": [expected]}],
    ).responses[0].partitions[0]  # fmt: skip
    batches = fetched_records(bytes(entry.records or b""), 0, entry.aborted_transactions or ())
    return [record.value for batch in batches for record in batch.records]


def await_values(raw: Raw, topic: Topic, expected: list[bytes], partition: int = 0) -> None:
    """Brokers before 4.0 respond to EndTxn before the records are visible."""
    until(lambda: len(values(raw, topic, partition)) >= len(expected), f"{len(expected)} records of {topic.name}")
    assert values(raw, topic, partition) == expected


def ran(kafka: Cluster, *arguments: str, status: int = 0) -> str:
    result = runner.invoke(cli.app, ["dead-letters", *arguments, "--bootstrap", kafka.bootstrap])
    assert result.exit_code == status, result.output
    return result.output


def listed(kafka: Cluster, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran(kafka, *arguments, "--json").splitlines()]


@pytest.fixture(params=["kafka_39", "kafka_43"])
def kafka(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster


def test_dead_letters_of_one_group_are_listed_with_their_source(kafka: Cluster, fresh: Fresh) -> None:
    with Raw(kafka.bootstrap) as raw:
        source, dead = raw.create_topic(fresh("source")), raw.create_topic(fresh("dlq"), 2)
        raw.append(dead, letters("g", source, [3, 4]))
        raw.append(dead, letters("other", source, [5]), partition=1)
        raw.append(dead, letters("g", source, [6], copies=False, rejected=False), partition=1)
        listed_letters = listed(kafka, "g", "list", "--topic", dead.name)
        assert [(each["offset"], each["deliveries"], each["key"], each["is_copied"]) for each in listed_letters] == [
            (3, 2, "key 3", True),
            (4, 2, "key 4", True),
            (6, 2, None, False),
        ]
        exhausted = listed(kafka, "g", "list", "--topic", dead.name, "--where", "error=exhausted")
        assert [each["offset"] for each in exhausted] == [6]
        table = ran(kafka, "g", "list", "--topic", dead.name, "--limit", "2")
        assert f"{source.name}-0:3" in table
        assert "only the first 2 are shown" in table


def test_redriven_records_arrive_once_however_often_it_is_run(kafka: Cluster, fresh: Fresh) -> None:
    with Raw(kafka.bootstrap) as raw:
        source, dead, group = raw.create_topic(fresh("source")), raw.create_topic(fresh("dlq")), fresh("group")
        raw.append(dead, letters(group, source, range(5)))
        assert "5 dead letters would be redriven" in ran(kafka, group, "redrive", "--topic", dead.name, "--dry-run")
        assert values(raw, source) == []
        assert "2 dead letters were" in ran(kafka, group, "redrive", "--topic", dead.name, "--limit", "2")
        assert "3 dead letters were" in ran(kafka, group, "redrive", "--topic", dead.name)
        assert "no dead letters were" in ran(kafka, group, "redrive", "--topic", dead.name)
        await_values(raw, source, [b"value %d" % number for number in range(5)])
        assert listed(kafka, group, "list", "--topic", dead.name) == []


def test_letters_that_a_condition_excludes_stay(kafka: Cluster, fresh: Fresh) -> None:
    with Raw(kafka.bootstrap) as raw:
        source, dead, group = raw.create_topic(fresh("source")), raw.create_topic(fresh("dlq")), fresh("group")
        for offset in range(6):
            raw.append(dead, letters(group, source, [offset], rejected=offset % 2 == 0))
        output = ran(kafka, group, "redrive", "--topic", dead.name, "--where", "error=exhausted")
        assert "3 dead letters were" in output
        assert "3 stay: --where excludes them" in output
        assert [each["offset"] for each in listed(kafka, group, "list", "--topic", dead.name)] == [0, 2, 4]
        ran(kafka, group, "redrive", "--topic", dead.name)
        await_values(raw, source, [b"value %d" % number for number in (1, 3, 5, 0, 2, 4)])


def test_letters_without_copies_are_redriven_from_the_source_as_long_as_it_exists(kafka: Cluster, fresh: Fresh) -> None:
    with Raw(kafka.bootstrap) as raw:
        source, dead, to = (raw.create_topic(fresh(name)) for name in ("source", "dlq", "to"))
        group = fresh("group")
        raw.produce(source, [b"zero", b"one"], [b"two"])
        raw.append(dead, letters(group, source, range(3), copies=False))
        raw.delete_records(source, 1)
        output = ran(kafka, group, "redrive", "--topic", dead.name, "--to", to.name)
        assert f"2 dead letters were redriven to {to.name}" in output
        assert "1 stay" in output
        await_values(raw, to, [b"one", b"two"])
        assert [each["offset"] for each in listed(kafka, group, "list", "--topic", dead.name)] == [0]


def test_a_redrive_that_is_killed_four_times_delivers_each_record_once(kafka: Cluster, fresh: Fresh) -> None:
    with Raw(kafka.bootstrap) as raw:
        source, dead, group = raw.create_topic(fresh("source"), 2), raw.create_topic(fresh("dlq"), 2), fresh("group")
        for partition in range(2):
            for first in range(0, 50, 10):
                letter_batch = letters(group, source, range(first + 100 * partition, first + 100 * partition + 10))
                raw.append(dead, letter_batch, partition=partition)
        arguments = ["dead-letters", group, "redrive", "--topic", dead.name, "--bootstrap", kafka.bootstrap]
        for point in ("_add_offsets:before", "_produce:after", "_commit_offsets:after", "_end:after"):
            done = subprocess.run([sys.executable, "-c", KILLED, point, *arguments, "--limit", "30"], check=False)
            assert done.returncode == 9
        output = ran(kafka, *arguments[1:-2])
        assert "70 dead letters were" in output

        def arrived() -> Counter[bytes | None]:
            return Counter(value for partition in range(2) for value in values(raw, source, partition))

        until(lambda: arrived().total() >= 100, "the last transaction to be visible")
        assert arrived() == Counter(b"value %d" % number for number in (*range(50), *range(100, 150)))


def test_mistakes_name_what_to_write(kafka: Cluster, fresh: Fresh) -> None:
    assert "write list or redrive" in ran(kafka, "g", "drop", status=2)
    assert "for example error=rejected" in ran(kafka, "g", "list", "--topic", "t", "--where", "cause=x", status=2)
    assert "has no topic for dead letters" in ran(kafka, fresh("group"), "list", status=1)
    assert "does not exist" in ran(kafka, "g", "list", "--topic", fresh("absent"), status=1)


def test_dead_letters_of_kafka_4_4_are_listed_and_redriven(running: Running, fresh: Fresh) -> None:
    """The judge of our names: headers, messages, partitions and the setting of the group are the broker's."""
    kafka = running.cluster("4.4.0", properties=QUICK, features=["share.version=2"])
    warm_up(kafka.bootstrap)
    world = World("native", kafka.bootstrap, fresh("w"))
    try:
        raw = world.raw
        source = world.topic("source", 3)
        dead = raw.create_topic(f"dlq.{source.name}", 2, {"errors.deadletterqueue.group.enable": "true"})
        copies = {"errors.deadletterqueue.copy.record.enable": "true"}
        group = world.group(**{"errors.deadletterqueue.topic.name": dead.name}, **copies)
        for partition in range(3):
            raw.produce(source, [b"%d" % partition], partition=partition)
        member = world.member(group, topics=[source])
        member.take_all(3, source)
        assert member.acknowledge(*[(source, partition, 0, 0, 3) for partition in range(3)]).error == 0

        def written() -> list[dict[str, Any]]:
            listed_letters = listed(kafka, group, "list")
            return listed_letters if len(listed_letters) == 3 else []

        written_letters = until(written, "three dead letters")
        assert {(each["partition"], each["at"]["partition"]) for each in written_letters} == {(0, 0), (1, 1), (2, 0)}
        assert {(each["error"], each["deliveries"]) for each in written_letters} == {("Offset rejected by client.", 1)}
        assert "3 dead letters were" in ran(kafka, group, "redrive")
        for partition in range(3):
            await_values(raw, source, [b"%d" % partition] * 2, partition)
    finally:
        world.close()
