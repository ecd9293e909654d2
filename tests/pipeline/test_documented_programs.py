"""The programs of docs/spark.md, and the options of its commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kafka_share_proxy
import pytest
from confluent_kafka import Producer
from kafka_share_proxy.app.cli import app
from kafka_share_proxy.app.commands import pipeline_demo
from kafka_share_proxy.localkafka.front import Front
from typer.main import get_command

from tests.support import documents
from tests.support.raw import Raw, Topic, until

RECORDS = 60
LIMIT_S = 60.0


@pytest.fixture
def as_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give programs the session of the tests, because a process has one Java only."""
    monkeypatch.setattr(kafka_share_proxy, "open_spark_session", lambda *_, **__: spark, raising=False)
    return spark


def with_own_names(code: str, own: dict[str, str]) -> str:
    """Return a program with the names of this test. Relative paths are those of the Java that Spark runs in."""
    for name, by in own.items():
        assert name in code, name
        code = code.replace(name, by)
    return code


@pytest.mark.broker
@pytest.mark.slow
def test_a_topic_is_read_by_key_range(as_session: Any, views_front: Front, orders: Topic, tmp_path: Path) -> None:
    own = {"proxy:9092": views_front.bootstrap, 'topic="orders"': f'topic="{orders.name}"'}
    own |= {'parquet("orders")': f'parquet("{tmp_path}/orders")'}
    code = with_own_names(documents.block(documents.SPARK, "python", 'format("keyrange")'), own)
    exec(compile(code, "spark.md", "exec"), {})
    rows = as_session.read.parquet(f"{tmp_path}/orders")
    with Raw(views_front.bootstrap) as raw:
        assert rows.count() == raw.end_offset(orders, 0) > 1_000


@pytest.mark.broker
@pytest.mark.slow
def test_records_of_a_share_group_are_filtered_written_and_acknowledged(
    as_session: Any, share_front: Front, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = fresh("orders"), fresh("lake")
    with Raw(share_front.bootstrap) as raw:
        raw.create_topic(topic)
        raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": share_front.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"%d %s" % (number, b"paid" if number % 2 else b"open"))
    assert producer.flush(30) == 0
    own = {"proxy:9092": share_front.bootstrap, '"topic": "orders"': f'"topic": "{topic}"', '"lake"': f'"{group}"'}
    own |= {'"checkpoint"': f'"{tmp_path}/checkpoint"', "paid/batch=": f"{tmp_path}/paid/batch="}
    program = compile(
        with_own_names(documents.block(documents.SPARK, "python", "ShareStream("), own), "spark.md", "exec"
    )
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(exec, program, {})
        try:
            until(lambda: running.done() or accepted(share_front, group) == RECORDS, "acknowledgements", LIMIT_S)
        finally:
            for query in as_session.streams.active:
                query.stop()
        running.result(LIMIT_S)
    written = as_session.read.parquet(f"{tmp_path}/paid").selectExpr("cast(value as string) as value").collect()
    assert sorted(row["value"] for row in written) == sorted(f"{number} paid" for number in range(1, RECORDS, 2))


def accepted(front: Front, group: str) -> float:
    """Return how many records of a share group were accepted."""
    page = front.send_request("/metrics")[1]
    lines = re.findall(r"^ksp_share_record_acknowledgements_total\{(.*)\} (\S+)$", page, re.MULTILINE)
    return sum(float(n) for labels, n in lines if f'group="{group}"' in labels and 'ack_type="accept"' in labels)


def test_every_option_of_the_listed_commands_exists() -> None:
    text = documents.block(documents.SPARK, "text", "kafka-share-proxy pipeline")
    root = get_command(app)
    group = root.get_command(None, "pipeline")
    lines = re.findall(r"^kafka-share-proxy pipeline (\w+)(.*)$", text, re.MULTILINE)
    assert {name for name, _ in lines} == set(group.commands)
    for name, rest in lines:
        options = {option for parameter in group.commands[name].params for option in parameter.opts}
        used_options = set(re.findall(r"(?<!\w)--?[a-z]+", rest.partition("#")[0]))
        assert used_options - options == set(), name


def test_the_demonstration_prints_the_steps_that_the_page_shows() -> None:
    """tests/long/run_pipeline runs it whole."""
    shown = re.findall(r"^(\d\. .*?) ─", documents.block(documents.SPARK, "console", "pipeline demo"), re.MULTILINE)
    titles = re.findall(r'_title\(f?"(\d\. [^"]+)"', inspect.getsource(pipeline_demo))
    assert len(shown) == 5
    for step in shown:
        (title,) = [title for title in titles if title[0] == step[0]]
        pattern = ".+".join(map(re.escape, re.split(r"\{[^}]*\}", title)))
        assert re.fullmatch(pattern, step), (title, step)
