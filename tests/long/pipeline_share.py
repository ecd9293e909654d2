"""G10 for share groups: a job is killed four times, concurrently with another member; run by tests/long/run_pipeline.

Each batch takes longer than its locks last, so nothing would ever be settled without renewal.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow.dataset
import pytest
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.share.share_member import ShareMember
from kafka_share_proxy.pipeline.share.share_options import read_share_options

from tests.support.brokers import NEW, OLD, QUICK, Running
from tests.support.raw import Raw, Topic, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3000)]
Fresh = Callable[[str], str]
RECORDS, PARTITIONS = 40_000, 4
STEP = 4_000
"""Offsets of one batch: what is in flight at a kill."""
LOCK_MS, BATCH_S = 1_500, 2.5
KILLS = 4
OTHER_STEP, OTHER_S = 50, 1.5
"""Records that the other member processes at a time, and for how long: it leaves most to the job."""
START_S, END_S = 300.0, 900.0
Place = tuple[int, int]

JOB = """
import sys, time
from kafka_share_proxy.pipeline import session
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.pipeline.share.share_stream import ShareStream

bootstrap, topic, group, folder, step, batch_s = sys.argv[1:]
given = {"bootstrap": bootstrap, "topic": topic, "group": group, "maxOffsetsPerTrigger": step}
with session.session_of("share", "local[2]", streaming=True) as spark:
    lake = Lake(spark, folder + "/lake")

    def write(rows, number):
        time.sleep(float(batch_s))
        lake.overwrite(rows.selectExpr("partition", "offset", f"'{number}' as batch"), "seen", ("batch",))

    with ShareStream(spark, given, folder + "/checkpoint") as stream:
        query = stream.start(write)
        while not query.awaitTermination(0.5):
            print("totals", *stream.acquirer.totals, stream.member.renewals, stream.member.lost, flush=True)
"""
"""Program of a user: writes its input into a separate table, slowly."""


@pytest.fixture(scope="module", params=[OLD, NEW])
def front(request: pytest.FixtureRequest, running: Running) -> Front | Cluster:
    """Share groups of the proxy in front of 3.9.1, and of brokers of 4.3.0."""
    if request.param == NEW:
        return running.native(properties=QUICK)
    settings = {"commits": {"state": "memory"}, "share_groups": {"state": "topic", "broker": QUICK}}
    return running.front(running.cluster(OLD).bootstrap, settings)


@pytest.fixture
def topic(front: Front | Cluster, fresh: Fresh) -> Topic:
    with Raw(front.bootstrap) as raw:
        created_topic = raw.create_topic(fresh("orders"), PARTITIONS)
    producer = Producer({"bootstrap.servers": front.bootstrap, "linger.ms": 5, "batch.num.messages": OTHER_STEP})
    for number in range(RECORDS):
        producer.produce(created_topic.name, b"%d" % number, partition=number % PARTITIONS)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return created_topic


@pytest.fixture
def group(front: Front | Cluster, fresh: Fresh) -> str:
    name = fresh("group")
    settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
    settings |= {"share.delivery.count.limit": "10"}  # kills are not to use it up
    with Raw(front.bootstrap) as raw:
        raw.configure_group(name, settings)
    return name


class Job:
    """The program, killed and started again."""

    def __init__(self, bootstrap: str, topic: Topic, group: str, folder: Path) -> None:
        self._arguments = [bootstrap, topic.name, group, str(folder), str(STEP), str(BATCH_S)]
        self._folder = folder
        self.commits = folder / "checkpoint" / "commits"
        self.logs: list[Path] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until it is killed, with all its processes."""
        self.logs.append(self._folder / f"log-{len(self.logs)}")
        command = [sys.executable, "-c", JOB, *self._arguments]
        with self.logs[-1].open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                yield
                assert process.poll() is None, self.logs[-1].read_text()[-3_000:]
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def batches(self) -> int:
        return len(list(self.commits.glob("[0-9]*")))

    def has_batches(self, count: int) -> bool:
        return self.batches() >= count

    def reported(self) -> list[list[int]]:
        """Return the last figures of each start: acknowledged, delivered again, refused, renewals, lost."""
        lines = [[line for line in log.read_text().splitlines() if line.startswith("totals ")] for log in self.logs]
        return [[int(word) for word in each[-1].split()[1:]] for each in lines if each]

    def written(self) -> list[Place]:
        """Return the content of the table; nothing while a batch is being replaced."""
        try:
            return self._written()
        except FileNotFoundError:
            return []

    def _written(self) -> list[Place]:
        table = pyarrow.dataset.dataset(self._folder / "lake" / "seen", partitioning="hive").to_table()
        return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


class Other:
    """Another member, which is never killed."""

    def __init__(self, bootstrap: str, topic: Topic, group: str) -> None:
        self._options = read_share_options({"bootstrap": bootstrap, "topic": topic.name, "group": group})
        self._ended = threading.Event()
        self._pause_s = OTHER_S
        self._thread = threading.Thread(target=self._work)
        self.settled: set[Place] = set()
        self.deliveries = 0

    def __enter__(self) -> Other:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def hurry(self) -> None:
        """Work as fast as it can: nothing is left but what is in its own partitions."""
        self._pause_s = 0.0

    def _work(self) -> None:
        with ShareMember(self._options, print) as member:
            while not self._ended.is_set():
                acquired = member.fetch(OTHER_STEP, 0.2).acquired
                self._ended.wait(self._pause_s)
                refused = member.accept(acquired)
                self.deliveries += sum(each.span.end - each.span.start for each in acquired)
                for each in acquired:
                    if each not in refused:
                        self.settled.update((each.partition.partition, offset) for offset in range(*each.span))


def test_four_kills_with_another_member_lose_nothing(
    front: Front | Cluster, topic: Topic, group: str, tmp_path: Path
) -> None:
    job, draw = Job(front.bootstrap, topic, group, tmp_path), random.Random(5)
    everything = {(number % PARTITIONS, number // PARTITIONS) for number in range(RECORDS)}
    with Other(front.bootstrap, topic, group) as other:
        for _ in range(KILLS):
            before = job.batches()
            with job.running():
                until(partial(job.has_batches, before + 1), "a batch", START_S)
                time.sleep(draw.uniform(0.0, BATCH_S + 1.0))  # in another phase of a batch each time
        with job.running():
            until(lambda: set(job.written()) | other.settled >= everything, "all records", END_S, 2.0)
            other.hurry()
            until(lambda: is_settled(front, topic, group), "all records to be settled", END_S, 2.0)
    written = job.written()
    again, both = len(written) - len(set(written)), len(set(written) & other.settled)
    print(
        f"{len(set(written))} offsets written, {again} of them twice; {len(other.settled)} by the other member, "
        f"{both} by both; {KILLS} kills; acknowledged, delivered again, refused, renewals, lost: {job.reported()}"
    )
    assert set(written) | other.settled == everything
    assert other.settled
    assert again <= STEP * KILLS
    assert both <= STEP * KILLS
    assert sum(each[3] for each in job.reported()) > 0


def is_settled(front: Front | Cluster, topic: Topic, group: str) -> bool:
    """True if the group has nothing left to do. Its start offset says less: brokers store it with the next change."""
    with Raw(front.bootstrap) as raw:
        expected = [{"topic_name": topic.name, "partitions": list(range(PARTITIONS))}]
        requested = [{"group_id": group, "topics": expected}]
        response = raw.send_request(
            "DescribeShareGroupOffsets", 1, on=raw.connect(raw.coordinator(group)), groups=requested
        )
    entries = response.groups[0].topics[0].partitions
    return [each.lag for each in entries] == [0] * PARTITIONS
