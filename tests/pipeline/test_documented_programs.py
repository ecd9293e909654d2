"""The programs of docs/spark.md, and the options of its commands."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import kafka_share_proxy
import pytest
from kafka_share_proxy.app.cli import app
from kafka_share_proxy.app.commands import pipeline_demo
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.share.share_options import read_share_options
from kafka_share_proxy.pipeline.share.share_stream import ShareStream
from typer.main import get_command

from tests.support import documents
from tests.support.raw import Raw, Topic


@pytest.fixture
def as_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give programs the session of the tests, because a process has one Java only."""
    monkeypatch.setattr(kafka_share_proxy, "open_spark_session", lambda *_, **__: spark, raising=False)
    return spark


def named(code: str, own: dict[str, str]) -> str:
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
    code = named(documents.block(documents.SPARK, "python", 'format("keyrange")'), own)
    exec(compile(code, "spark.md", "exec"), {})
    rows = as_session.read.parquet(f"{tmp_path}/orders")
    with Raw(views_front.bootstrap) as raw:
        assert rows.count() == raw.end_offset(orders, 0) > 1_000


def test_the_program_of_a_share_group_calls_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/pipeline/share/test_share_stream.py and tests/long/pipeline_share.py run such streams."""
    stream, calls = create_autospec(ShareStream, instance=True), []
    stream.__enter__.return_value = stream

    def opened(*values: Any, **named_values: Any) -> Any:
        calls.append(inspect.signature(ShareStream).bind(*values, **named_values).arguments["given"])
        return stream

    monkeypatch.setattr(kafka_share_proxy, "open_spark_session", lambda *_, **__: None, raising=False)
    monkeypatch.setattr(kafka_share_proxy, "ShareStream", opened, raising=False)
    exec(compile(documents.block(documents.SPARK, "python", "ShareStream("), "spark.md", "exec"), {})
    options = read_share_options(calls[0])
    assert options.group == "lake"
    (write, rows), _ = stream.start.call_args
    assert rows is stream.rows.where.return_value
    batch = Mock()
    write(batch, 7)
    batch.write.mode.return_value.parquet.assert_called_once_with("paid/batch=7")


def test_every_option_of_the_listed_commands_exists() -> None:
    text = documents.block(documents.SPARK, "text", "kafka-share-proxy pipeline")
    root = get_command(app)
    group = root.get_command(None, "pipeline")
    lines = re.findall(r"^kafka-share-proxy pipeline (\w+)(.*)$", text, re.MULTILINE)
    assert {name for name, _ in lines} == set(group.commands)
    for name, rest in lines:
        options = {option for parameter in group.commands[name].params for option in parameter.opts}
        named = set(re.findall(r"(?<!\w)--?[a-z]+", rest.partition("#")[0]))
        assert named - options == set(), name


def test_the_demonstration_prints_the_steps_that_the_page_shows() -> None:
    """tests/long/run_pipeline runs it whole."""
    shown = re.findall(r"^(\d\. .*?) ─", documents.block(documents.SPARK, "console", "pipeline demo"), re.MULTILINE)
    titles = re.findall(r'_title\(f?"(\d\. [^"]+)"', inspect.getsource(pipeline_demo))
    assert len(shown) == 5
    for step in shown:
        (title,) = [title for title in titles if title[0] == step[0]]
        pattern = ".+".join(map(re.escape, re.split(r"\{[^}]*\}", title)))
        assert re.fullmatch(pattern, step), (title, step)
