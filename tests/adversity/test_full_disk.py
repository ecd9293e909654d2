"""The broker of a topic for dead letters runs out of disk: no record is lost, and none has two dead letters.

Three brokers of 3.9.1. The data of the third is moved to a small tmpfs, which needs the right to mount. Only the topic
for dead letters is led by it and has no other replica.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType
from kafka_share_proxy.localkafka.cluster import Cluster, Node
from kafka_share_proxy.localkafka.front import Front

from tests.stock.test_dead_letters import fields, letters_in
from tests.stock.test_queues import Queue
from tests.support.brokers import OLD, QUICK, Running
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

ACCEPT, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT
SPARE_MB = 16
"""Space that is free at first."""
PAGE = 4096
VALUE = "v" * 2_000
RECORDS, FIRST = 240, 40
"""Records, and those that are settled while there is space."""
LETTERS = {"errors.deadletterqueue.copy.record.enable": "true"}


@contextmanager
def small_disk(node: Node) -> Iterator[Path]:
    """Move the data of a stopped broker to a tmpfs with little space. Skips the test without the right to mount."""
    data, original_data = node.folder / "data", node.folder / "kept"
    data.rename(original_data)
    data.mkdir()
    used_kb = int(
        subprocess.run(["du", "-sk", original_data], capture_output=True, text=True, check=True).stdout.split()[0]
    )
    options = ["-t", "tmpfs", "-o", f"size={used_kb + SPARE_MB * 1024}k", "none", str(data)]
    if not shutil.which("mount") or subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        subprocess.run(["cp", "-a", "--sparse=always", f"{original_data}/.", data], check=True)
        yield data
    finally:
        node.kill()
        subprocess.run(["umount", data], check=True)


def fill(folder: Path) -> Path:
    """Write a file until the disk is full."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as out, suppress(OSError):
        for _ in range(shutil.disk_usage(folder).total // PAGE):
            out.write(bytes(PAGE))
    assert shutil.disk_usage(folder).free < PAGE
    return ballast


def figure(front: Front, name: str) -> float:
    """Return the sum of a metric."""
    page = front.send_request("/metrics")[1]
    return sum(float(value) for value in re.findall(rf"^ksp_{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE))


class LettersElsewhere(Queue):
    """A queue whose topic for dead letters is on broker 3 alone."""

    def __init__(self, front: Front, fresh: Callable[[str], str]) -> None:
        self.letters = f"dead-{fresh('letters')[-20:]}"
        with Raw(front.bootstrap) as raw:
            raw.create_topic(self.letters, assignments={0: [3], 1: [3]}, configs={"min.insync.replicas": "1"})
        super().__init__(front, fresh, **LETTERS, **{"errors.deadletterqueue.topic.name": self.letters})

    def settle(self, expected: int, settled: dict[int, AcknowledgeType]) -> None:
        """Reject every even offset and accept the others, until this many records are settled."""
        end = time.monotonic() + 120
        with self.members(1, **{"max.poll.records": 20}) as (member,):
            while len(settled) < expected:
                assert time.monotonic() < end, f"{len(settled)} of {expected} records are settled"
                for message in member.poll(0.5) or []:
                    kind = ACCEPT if message.offset() % 2 else REJECT
                    if len(settled) < expected:
                        member.acknowledge(message, kind)
                        settled[message.offset()] = kind
                    else:
                        member.acknowledge(message, AcknowledgeType.RELEASE)
                member.commit_sync()


@pytest.fixture
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD, nodes=3)


def test_dead_letters_wait_while_the_disk_is_full_and_are_written_once(
    running: Running, kafka: Cluster, fresh: Callable[[str], str]
) -> None:
    dead_letters = {"topics": ["dead-*"]}
    front = running.front(
        kafka.bootstrap, {"share_groups": {"state": "topic", "broker": QUICK, "dead_letters": dead_letters}}
    )
    queue = LettersElsewhere(front, fresh)
    broker, settled = kafka.node(3), dict[int, AcknowledgeType]()
    with Raw(kafka.bootstrap) as raw:
        source = raw.topic(queue.topic)
        assert source is not None
        raw.produce(source, *[[VALUE.encode()] * 20] * (RECORDS // 20))
    broker.stop()
    with small_disk(broker) as disk:
        broker.start()
        kafka.wait_ready()
        queue.settle(FIRST, settled)
        until(lambda: figure(front, "share_dead_letters_waiting") == 0, "the first dead letters")

        ballast = fill(disk)
        queue.settle(RECORDS, settled)
        time.sleep(3)
        waiting = figure(front, "share_dead_letters_waiting")
        assert waiting, "every dead letter was written to a full disk"
        assert figure(front, "share_dead_letter_topics_unwritable") == 1
        ended = not broker.running

        ballast.unlink()
        if ended:
            broker.start()
        kafka.wait_ready()
        until(lambda: figure(front, "share_dead_letters_waiting") == 0, "the other dead letters", limit_s=120)
        rejected = sorted(offset for offset, kind in settled.items() if kind == REJECT)
        letters = letters_in(kafka.bootstrap, queue.letters, len(rejected))
        assert sorted(int(fields(each)["offset"]) for each in letters) == rejected
        assert {each.value() for each in letters} == {VALUE.encode()}
        print(f"\n{int(waiting)} of {len(rejected)} dead letters waited; the broker {'ended' if ended else 'went on'}")
