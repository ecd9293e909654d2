"""Spans of a share consumer's requests, exported by OTLP over HTTP by a real proxy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import confluent_kafka
import pytest
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.front import Front
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.brokers import OLD, QUICK, Running
from tests.support.raw import Raw

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(240)]

RECORDS = 10
LIMIT_S = 60.0
GROUP = "traced-group"


class Collector:
    """Receives spans as a collector of OpenTelemetry does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.receive(self.path, ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def receive(self, path: str, request: ExportTraceServiceRequest) -> None:
        assert path == "/v1/traces"
        for each in request.resource_spans:
            self.resources.append({pair.key: pair.value.string_value for pair in each.resource.attributes})
            self.spans += [span for scope in each.scope_spans for span in scope.spans]

    def spans_named(self, prefix: str) -> list[Span]:
        return [span for span in self.spans if span.name.startswith(prefix)]

    def stop(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    running_collector = Collector()
    try:
        yield running_collector
    finally:
        running_collector.stop()


@pytest.fixture(scope="module")
def front(running: Running, collector: Collector) -> Iterator[Front]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{HOST}:{collector.server.server_port}")
        patch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        settings = {"share_groups": {"state": "topic", "broker": QUICK}, "tracing": {"export": "otlp"}}
        yield running.front(running.cluster(OLD).bootstrap, settings)


def consume(front: Front, topic: str) -> None:
    """Produce records, acquire them as a member of a share group, and accept them."""
    with Raw(front.bootstrap) as raw:
        raw.create_topic(topic)
        raw.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
    producer = confluent_kafka.Producer({"bootstrap.servers": front.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    options = {"bootstrap.servers": front.bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    member = confluent_kafka.ShareConsumer(options)
    member.subscribe([topic])
    end, received = time.monotonic() + LIMIT_S, 0
    while received < RECORDS:
        assert time.monotonic() < end, f"{received} records arrived"
        for message in member.poll(0.2) or []:
            if message.error() is None:
                received += 1
                member.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
    member.commit_sync()
    member.close()


def attributes(span: Span) -> dict[str, str | int]:
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}


def test_spans_of_a_share_group_reach_the_collector(front: Front, collector: Collector) -> None:
    topic = "traced"
    consume(front, topic)
    end = time.monotonic() + LIMIT_S
    acquiring: list[Span] = []
    while not acquiring:
        assert time.monotonic() < end, sorted({span.name for span in collector.spans})
        fetches = collector.spans_named(f"ShareFetch {topic}")
        acquiring = [span for span in fetches if attributes(span).get("messaging.batch.message_count")]
    assert sum(int(attributes(span)["messaging.batch.message_count"]) for span in acquiring) == RECORDS
    (span, *_) = acquiring
    assert span.kind == Span.SPAN_KIND_SERVER
    assert attributes(span)["messaging.consumer.group.name"] == GROUP
    assert span.start_time_unix_nano < span.end_time_unix_nano
    below = [each for each in collector.spans if each.parent_span_id == span.span_id]
    assert "Fetch" in {each.name for each in below}, "the read that this member made upstream"
    assert {each.trace_id for each in below} == {span.trace_id}
    assert collector.resources[0]["service.name"] == "kafka-share-proxy"
    assert collector.spans_named("ShareGroupHeartbeat")
    assert not collector.spans_named("Produce"), "it is forwarded"


def test_the_last_spans_are_exported_before_the_end(
    running: Running, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{HOST}:{collector.server.server_port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    settings = {"share_groups": {"broker": QUICK}, "tracing": {"export": "otlp"}}
    front = running.front(running.cluster(OLD).bootstrap, settings)
    began = time.time_ns()
    with Raw(front.bootstrap) as raw:
        raw.configure_group("last", {"share.auto.offset.reset": "earliest"})

    def exported() -> list[Span]:
        return [span for span in collector.spans_named("IncrementalAlterConfigs") if span.start_time_unix_nano > began]

    assert exported() == []
    front.stop()
    assert exported()
