"""State together with records of another topic, on real brokers: kill -9 of the owner at each step, refusals, readers.

The owner is a process that hosts the test state. Each takeover is that of a new process.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka_share_proxy.localkafka.addresses import free_ports
from kafka_share_proxy.localkafka.front import Front

from tests.adversity.test_second_state import send_command
from tests.support import dying_state_proxy
from tests.support.brokers import NEW, OLD, Running
from tests.support.dying_state_proxy import FAULTS
from tests.support.raw import TOPIC_RESOURCE, Raw, until
from tests.support.small_state import WIDE_STATE

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(480)]

MEMORY = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
READS_MAX = 10_000
RELEASES = [OLD, pytest.param(NEW, marks=pytest.mark.long)]
"""The brokers of both releases treat transactions alike: the newer one is tested by `tests/run -m long`."""
EITHER = {f"EndTxn {moment}" for moment in ("sent", "processed")}
"""Faults after which the transaction may be committed."""


class Owner:
    """The process that owns the state, and a reader of outside topics."""

    def __init__(self, running: Running, release: str, nodes: int = 1) -> None:
        self.kafka = running.cluster(release, nodes=nodes)
        (self.port,) = free_ports(1)
        self.front: Front = running.front(self.kafka.bootstrap, MEMORY, command=self.command("none"))
        self.raw = Raw(self.kafka.bootstrap)
        self.wait()

    def command(self, fault: str) -> list[str]:
        return [sys.executable, str(Path(dying_state_proxy.__file__)), fault, str(self.port)]

    def wait(self) -> None:
        """Wait until the whole state is served."""
        until(lambda: len(send_command(self.port).get("served", ())) == WIDE_STATE.partitions, "the state to be served")

    def restart(self, fault: str = "none") -> None:
        """Kill the process, and start another one that dies at this fault."""
        self.front.kill()
        self.front.command = self.command(fault)
        self.front.start()
        self.wait()

    def put(self, key: str, text: str, *outside: tuple[str, int, list[str]]) -> dict[str, Any]:
        more = {"with": [list(each) for each in outside]} if outside else {}
        return send_command(self.port, put=[key, text], **more)

    def held(self, key: str) -> str | None:
        return send_command(self.port)["held"].get(key)

    def letters(self, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[str]:
        """Return the values up to the end of the log, which must be the last stable offset."""
        settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": "letters", "isolation.level": isolation}
        consumer = Consumer(settings | {"enable.partition.eof": True, "auto.offset.reset": "earliest"})
        values: list[str] = []
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            for _ in range(READS_MAX):
                message = consumer.poll(10)
                assert message is not None, "the last stable offset does not reach the end of the log"
                if message.error() is not None:
                    break
                values.append((message.value() or b"").decode())
        finally:
            consumer.close()
        return values


@pytest.fixture(scope="module", params=RELEASES)
def owner(running: Running, request: pytest.FixtureRequest) -> Iterator[Owner]:
    new_owner = Owner(running, request.param)
    yield new_owner
    new_owner.raw.close()


@pytest.fixture
def topic(owner: Owner, fresh: Callable[[str], str]) -> str:
    name = fresh("dlq")
    owner.raw.create_topic(name, partitions=2)
    return name


def test_state_and_outside_records_are_committed_together(owner: Owner, topic: str) -> None:
    for number in range(20):
        outside = [(topic, 0, [f"{number}-a", f"{number}-b"]), (topic, 1, [f"{number}"])]
        assert owner.put(topic, f"text {number}", *outside)["stored"] == topic
        assert owner.put(topic, f"plain {number}") == {"stored": topic}
    assert owner.letters(topic) == [f"{number}-{part}" for number in range(20) for part in "ab"]
    assert owner.letters(topic, 1) == [str(number) for number in range(20)]
    until(lambda: send_command(owner.port)["followed"].get(topic) == "plain 19", "the tail to follow")
    owner.restart()
    assert owner.held(topic) == "plain 19"


def test_tail_follows_a_transaction_once_it_is_committed(owner: Owner, topic: str) -> None:
    assert owner.put(topic, "committed", (topic, 0, ["letter"]))["stored"] == topic
    until(lambda: send_command(owner.port)["followed"].get(topic) == "committed", "the tail to follow")


@pytest.mark.parametrize("fault", FAULTS)
def test_owner_killed_at_a_step_leaves_both_or_none(owner: Owner, topic: str, fault: str) -> None:
    """The takeover ends its transaction, and the next owner can repeat the append: nothing is lost or doubled."""
    assert owner.put(topic, "before", (topic, 0, ["before"]))["stored"] == topic
    owner.restart(fault)
    assert owner.put(topic, "doomed", (topic, 0, ["doomed"]), (topic, 1, ["doomed"])) == {}
    owner.restart()
    text = owner.held(topic)
    letters = ["before", "doomed"] if text == "doomed" else ["before"]
    assert text == letters[-1]
    assert fault in EITHER or text == "before"
    assert fault != "EndTxn processed" or text == "doomed"
    assert owner.letters(topic) == letters
    assert owner.letters(topic, 1) == letters[1:]
    if text == "before":
        assert owner.put(topic, "doomed", (topic, 0, ["doomed"]), (topic, 1, ["doomed"]))["stored"] == topic
    assert owner.put(topic, "after") == {"stored": topic}
    assert owner.letters(topic) == ["before", "doomed"]
    assert owner.letters(topic, 1) == ["doomed"]
    assert owner.held(topic) == "after"


def test_refused_outside_records_leave_nothing_visible(owner: Owner, topic: str) -> None:
    """The first partition accepts its records, the second is refused: too large for the topic."""
    owner.raw.try_configure(TOPIC_RESOURCE, topic, {"max.message.bytes": "1000"})
    assert owner.put(topic, "before") == {"stored": topic}
    large = random.Random(1).randbytes(3000).hex()

    def is_refused() -> bool:
        response = owner.put(topic, "refused", (topic, 0, ["small"]), (topic, 1, [large]))
        return response == {"refused": "MESSAGE_TOO_LARGE"}

    until(is_refused, "the topic to refuse large records")
    small = len([each for each in owner.letters(topic) if each == "small"])
    assert len(owner.letters(topic, isolation="read_uncommitted")) > small
    assert owner.put(topic, "after", (topic, 0, ["fits"]), (topic, 1, ["fits"]))["stored"] == topic
    assert owner.letters(topic)[small:] == ["fits"]
    owner.restart()
    assert owner.held(topic) == "after"


def test_unknown_topic_or_partition_is_refused(owner: Owner, topic: str) -> None:
    assert owner.put(topic, "before") == {"stored": topic}
    for outside in ((f"{topic}-missing", 0, ["letter"]), (topic, 9, ["letter"])):
        assert owner.put(topic, "refused", outside) == {"refused": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert owner.put(topic, "after") == {"stored": topic}


class Putter:
    """Puts numbered keys with a letter each, one after the other, until it is stopped."""

    def __init__(self, owner: Owner, topic: str, name: str) -> None:
        self.outcomes: dict[str, str] = {}
        """"stored", the code of the refusal, or empty if there was no response."""
        self._owner, self._topic, self._name = owner, topic, name
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            key = f"{self._name}-{number}"
            response = self._owner.put(key, key, (self._topic, number % 2, [key]))
            self.outcomes[key] = "stored" if "stored" in response else response.get("refused", "")

    @property
    def stored(self) -> int:
        return list(self.outcomes.values()).count("stored")

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.mark.long  # in short: the owner's kills above, and tests/adversity/test_dead_broker.py
@pytest.mark.parametrize("release", RELEASES)
def test_state_and_outside_records_agree_while_brokers_are_lost(
    running: Running, fresh: Callable[[str], str], release: str
) -> None:
    """Each of three nodes is killed or suspended in turn: it is a leader of all topics and a coordinator."""
    owner, topic = Owner(running, release, nodes=3), fresh("dlq")
    owner.raw.create_topic(topic, partitions=2)
    putters = [Putter(owner, topic, f"{topic}-{number}") for number in range(3)]
    try:
        for node in owner.kafka.nodes:
            before = [putter.stored for putter in putters]
            until(lambda before=before: all(p.stored > b for p, b in zip(putters, before, strict=True)), "progress")
            node.suspend() if node is owner.kafka.nodes[1] else node.kill()
            before = [putter.stored for putter in putters]
            until(lambda before=before: all(p.stored > b for p, b in zip(putters, before, strict=True)), "failover", 60)
            node.resume() if node is owner.kafka.nodes[1] else node.start()
            owner.kafka.wait_ready()
            time.sleep(3)  # the node becomes an in-sync replica again: min.insync.replicas is 2
    finally:
        for putter in putters:
            putter.stop()
    owner.restart()
    letters = Counter([*owner.letters(topic), *owner.letters(topic, 1)])
    outcomes = {key: outcome for putter in putters for key, outcome in putter.outcomes.items()}
    print(Counter(outcomes.values()))
    held = send_command(owner.port)["held"]
    for key, outcome in outcomes.items():
        assert letters[key] == (1 if key in held else 0), (key, outcome)
        assert key in held or outcome != "stored", key
        assert key not in held or outcome in ("stored", "", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"), outcome
    owner.raw.close()
