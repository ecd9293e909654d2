"""The judge in tests/support/clients_at_work.py finds records that are lost, written twice, or not received."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from kafka_share_proxy.conformance.cluster_thread import running_cluster

from tests.support.clients_at_work import PARTITIONS, Client, Reported, faults, reported, values_in
from tests.support.raw import Raw

RECORDS = 3000
LIMIT_S = 20
PRODUCER, GROUP = Client("confluent", "produce"), Client("confluent", "group")


def test_the_whole_topic_is_read() -> None:
    with running_cluster() as cluster:
        with Raw(cluster.bootstrap) as raw:
            raw.create_topic("t", PARTITIONS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("t", str(number), partition=number % PARTITIONS)
        producer.produce("t", "7", partition=0)
        assert producer.flush(LIMIT_S) == 0
        counts = values_in(cluster.bootstrap, "t")
    assert (len(counts), counts["7"], counts["8"]) == (RECORDS, 2, 1)


def test_lost_repeated_and_missing_records_and_errors_are_faults() -> None:
    clean = {PRODUCER: Reported({"a": 1, "b": 2}), GROUP: Reported(consumed=Counter("aab"))}
    assert faults(clean, Counter("ab")) == []
    assert faults(clean, Counter("a")) == ["lost: ['b']"]
    assert faults(clean, Counter("abb")) == ["written twice: ['b']"]
    assert faults(clean | {GROUP: Reported(consumed=Counter("a"))}, Counter("ab")) == [
        "not received by confluent-group: ['b']"
    ]
    assert faults({PRODUCER: Reported(errors=["E timed out"])}, Counter()) == ["confluent-produce: E timed out"]


def test_the_lines_of_both_kinds_of_programs_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("P x-1 5\nC x-2 6\nC x-2 7\nE KafkaError{code=1}\nsomething else\n")
    report = reported(PRODUCER, log)
    assert (report.produced, report.consumed, report.errors) == (
        {"x-1": 5},
        Counter({"x-2": 2}),
        ["E KafkaError{code=1}"],
    )
    log.write_text(
        '{"timestamp":3,"name":"producer_send_success","value":"7.1"}\n'
        '{"name":"producer_send_error","value":"7.2","exception":"class Timeout"}\n'
        '{"name":"record_data","value":"7.1"}\nSLF4J: text\n'
    )
    report = reported(Client("java", "produce"), log)
    assert (report.produced, report.consumed["7.1"], len(report.errors)) == ({"7.1": 3_000_000}, 1, 1)
