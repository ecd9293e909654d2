"""Traces of stock clients through several workers: what is written, what is left out, and who is not traced."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support import documents, shell_examples
from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, until

pytestmark = pytest.mark.broker

Fresh = Callable[[str], str]
SECRET = "correct-horse"
"""Value and key of every record."""
LIMIT_S = 30.0
RECORDS = 20
PAGES_MAX = 100


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    settings = {"workers": 2, "trace": {"lines": 2000, "seconds_max": 90}}
    return running.front(kafka.bootstrap, settings)


def post(front: Front, path: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection(HOST, front.admin_port, timeout=60)
    connection.request("POST", path)
    response = connection.getresponse()
    body: dict[str, Any] = json.loads(response.read())
    connection.close()
    assert response.status == HTTPStatus.OK, body
    return body


def traced(front: Front) -> list[dict[str, Any]]:
    """Return all lines of the trace."""
    trace_lines: list[dict[str, Any]] = []
    path = "/trace"
    for _ in range(PAGES_MAX):
        body = json.loads(front.send_request(path)[1])
        if not body["lines"]:
            return trace_lines
        trace_lines += [json.loads(line) for line in body["lines"]]
        path = f"/trace/after/{body['position']}"
    raise AssertionError("the trace does not end")


def apis(lines: list[dict[str, Any]], kind: str = "response") -> set[str]:
    return {line[kind] for line in lines if kind in line}


def produced(front: Front, topic: str, client_id: str, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": front.bootstrap, "client.id": client_id, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, SECRET, key=f"{SECRET}-{number}")
    assert producer.flush(LIMIT_S) == 0


@pytest.fixture
def topic(front: Front, fresh: Fresh) -> str:
    with Raw(front.bootstrap) as raw:
        name = fresh("topic")
        raw.create_topic(name, 2)
    return name


def test_a_producer_is_traced_without_its_records_and_others_are_not(front: Front, fresh: Fresh, topic: str) -> None:
    client = fresh("app")
    post(front, f"/trace/begin/{client}/60")
    produced(front, topic, client)
    produced(front, topic, "another")
    lines = traced(front)
    post(front, "/trace/end")
    assert {"ApiVersions", "Metadata", "InitProducerId", "Produce"} <= apis(lines)
    assert {line["client_id"] for line in lines if "request" in line} == {client}
    assert all("body" in line for line in lines), [line for line in lines if "body" not in line]
    batches = [
        batch
        for line in lines
        if line.get("request") == "Produce"
        for each in line["body"]["TopicData"]
        for part in each["PartitionData"]
        for batch in part["Records"]["batches"]
    ]
    assert sum(batch["records"] for batch in batches) == RECORDS
    assert SECRET not in json.dumps(lines)
    brokers = [each for line in lines if line.get("response") == "Metadata" for each in line["body"]["Brokers"]]
    assert {each["Port"] for each in brokers} == {front.port + 2}  # as the client received them


def share_consumer(front: Front, client: str, group: str, topic: str) -> ShareConsumer:
    with Raw(front.bootstrap) as raw:
        raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
    consumer = ShareConsumer({"bootstrap.servers": front.bootstrap, "client.id": client, "group.id": group})
    consumer.subscribe([topic])
    return consumer


def test_share_groups_and_views_that_the_proxy_serves_are_traced(front: Front, fresh: Fresh, topic: str) -> None:
    client, group = fresh("app"), fresh("group")
    produced(front, topic, "another")
    post(front, f"/trace/begin/{client}/60")
    sharing = share_consumer(front, client, group, topic)
    got: list[Any] = []
    until(lambda: got.extend(sharing.poll(0.5)) or len(got) >= RECORDS, "the records of the share group", LIMIT_S)
    sharing.close()
    view = f"__view.r2.{topic}"
    settings = {"bootstrap.servers": front.bootstrap, "client.id": client, "group.id": fresh("viewers")}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe([view])
    messages: list[Any] = []
    until(
        lambda: messages.extend(consumer.consume(RECORDS, 0.5)) or len(messages) >= RECORDS,
        "the view's records",
        LIMIT_S,
    )
    consumer.close()
    lines = traced(front)
    post(front, "/trace/end")
    assert {"ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge", "Fetch", "OffsetCommit"} <= apis(lines)
    assert SECRET not in json.dumps(lines)
    acquired = [
        part["AcquiredRecords"]
        for line in lines
        if line.get("response") == "ShareFetch" and "body" in line
        for each in line["body"]["Responses"]
        for part in each["Partitions"]
    ]
    assert sum(each["LastOffset"] - each["FirstOffset"] + 1 for part in acquired for each in part) == RECORDS
    assert any(view in json.dumps(line) for line in lines)
    assert {line["worker"] for line in lines} <= {0, 1}


def test_a_trace_that_no_reader_fetches_ends_at_its_limit_and_delays_no_client(
    front: Front, fresh: Fresh, topic: str
) -> None:
    client = fresh("app")
    post(front, f"/trace/begin/{client}/60")
    settings = {"bootstrap.servers": front.bootstrap, "client.id": client, "linger.ms": 0, "batch.num.messages": 1}
    producer = Producer(settings)
    for _ in range(3000):
        producer.produce(topic, SECRET)
    assert producer.flush(LIMIT_S) == 0
    state = json.loads(front.send_request("/trace")[1])
    assert state["ended"] == "it has reached a limit of trace"  # at the worker of this client
    assert len(traced(front)) <= 2 * 2000 + 100


def test_the_commands_of_the_page_trace_a_stock_client(front: Front, fresh: Fresh, topic: str, tmp_path: Path) -> None:
    client, printed = fresh("app"), tmp_path / "printed"
    text = documents.block(documents.OPERATE, "sh", "kafka-share-proxy trace")
    own = {"proxy.example:19098": f"127.0.0.1:{front.admin_port}", "orders-app": client, "10.0.3.17": "127.0.0.1"}
    for words in shell_examples.commands(text.replace("30s", "4s"), own):
        duration = [] if "--for" in words else ["--for", "4s"]
        command = [*shell_examples.runnable(words), *duration]
        with printed.open("w") as output_file, subprocess.Popen(command, stdout=output_file) as process:
            while process.poll() is None:  # until its time is over: both workers take part at some time in it
                produced(front, topic, client)
                time.sleep(0.3)  # far below `trace.lines`
        assert process.returncode == 0
        output = printed.read_text()
        assert "Produce" in output
        assert SECRET not in output
        assert "its time is over" in output.splitlines()[-1]


def test_serve_begins_a_trace_and_new_workers_join_it(running: Running, fresh: Fresh) -> None:
    kafka = running.cluster(OLD)
    client, topic = fresh("app"), fresh("topic")
    settings = {"workers": 2, "drain_s": 1}
    command = ["sh", "-c", f'exec "$0" -m kafka_share_proxy "$@" --trace {client}', sys.executable]
    own = running.front(kafka.bootstrap, settings, command)
    with Raw(own.bootstrap) as raw:
        raw.create_topic(topic, 1)
    produced(own, topic, client)
    assert "Produce" in apis(traced(own))
    post(own, f"/trace/begin/{client}/60")
    post(own, "/upgrade")
    until(lambda: '"2"' in own.send_request("/livez")[1], "new workers", LIMIT_S)
    time.sleep(1.5)  # the workers before them end
    produced(own, topic, client)
    assert {line["worker"] for line in traced(own) if line.get("request") == "Produce"} <= {2, 3}
    assert "Produce" in apis(traced(own))
    assert own.stop() == 0
