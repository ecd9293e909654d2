"""Spans for the processing of records, with the context of their producers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import kafka_share_proxy
import pytest
from kafka_share_proxy import ConsumerRecord, ShareRecord, TracingMissing, processing_span
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import error_attributes
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.trace import SpanKind, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Headers = Sequence[tuple[str, bytes | None]]
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, PRODUCER = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exported: InMemorySpanExporter) -> TracerProvider:
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(SimpleSpanProcessor(exported))
    return tracer_provider


def record(headers: Headers = (), topic: str = "orders", key: bytes | None = b"k", value: bytes | None = b"v"):
    return ConsumerRecord(topic, 3, key, value, headers, 0, 42, 0)


def only(exported: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exported.get_finished_spans()
    return span


def test_span_of_a_record_is_in_the_trace_of_its_producer(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    with processing_span(record([("traceparent", PARENT)]), group="billing", tracer_provider=provider) as span:
        assert get_current_span() is span
    exported_span = only(exported)
    assert (exported_span.name, exported_span.kind) == ("process orders", SpanKind.CONSUMER)
    assert exported_span.parent is not None
    assert (exported_span.parent.trace_id, exported_span.parent.span_id, exported_span.parent.is_remote) == (
        TRACE,
        PRODUCER,
        True,
    )
    assert [link.context.span_id for link in exported_span.links] == [PRODUCER]
    assert exported_span.attributes == {
        messaging.MESSAGING_SYSTEM: "kafka",
        messaging.MESSAGING_OPERATION_NAME: "process",
        messaging.MESSAGING_OPERATION_TYPE: "process",
        messaging.MESSAGING_DESTINATION_NAME: "orders",
        messaging.MESSAGING_DESTINATION_PARTITION_ID: "3",
        messaging.MESSAGING_KAFKA_OFFSET: 42,
        messaging.MESSAGING_KAFKA_MESSAGE_KEY: "k",
        messaging.MESSAGING_CONSUMER_GROUP_NAME: "billing",
    }


def test_span_of_a_record_within_another_span_is_below_that_one_and_linked(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    with provider.get_tracer("app").start_as_current_span("batch") as outer:
        with processing_span(record([("traceparent", PARENT)]), tracer_provider=provider):
            pass
        exported_span = only(exported)
    assert exported_span.parent is not None
    assert exported_span.parent.span_id == outer.get_span_context().span_id
    assert [link.context.trace_id for link in exported_span.links] == [TRACE]


def test_span_of_several_records_has_a_link_for_each_producer(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    other = PARENT.replace(b"b7ad", b"0001")
    records = [record([("traceparent", PARENT)]), record(), record([("TraceParent", other)], topic="payments")]
    with processing_span(*records, tracer_provider=provider):
        pass
    exported_span = only(exported)
    assert (exported_span.name, exported_span.parent) == ("process", None)
    assert [link.context.span_id for link in exported_span.links] == [PRODUCER, 0x0001_6B7169203331]
    assert exported_span.attributes is not None
    assert exported_span.attributes[messaging.MESSAGING_BATCH_MESSAGE_COUNT] == 3
    assert messaging.MESSAGING_DESTINATION_NAME not in exported_span.attributes


@pytest.mark.parametrize(
    "headers", [[], [("traceparent", None)], [("traceparent", b"\xff\xfe")], [("traceparent", b"00-0-0-0")]]
)
def test_record_without_a_valid_context_begins_a_trace(
    provider: TracerProvider, exported: InMemorySpanExporter, headers: Headers
) -> None:
    with processing_span(record(headers, key=b"\xff", value=None), tracer_provider=provider):
        pass
    exported_span = only(exported)
    assert (exported_span.parent, list(exported_span.links)) == (None, [])
    assert exported_span.attributes is not None
    assert exported_span.attributes[messaging.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] is True
    assert messaging.MESSAGING_KAFKA_MESSAGE_KEY not in exported_span.attributes


def test_failure_of_the_processing_is_recorded_and_raised(
    provider: TracerProvider, exported: InMemorySpanExporter
) -> None:
    with pytest.raises(ZeroDivisionError), processing_span(record(), tracer_provider=provider):
        raise ZeroDivisionError
    exported_span = only(exported)
    assert exported_span.status.status_code is StatusCode.ERROR
    assert exported_span.attributes is not None
    assert exported_span.attributes[error_attributes.ERROR_TYPE] == "ZeroDivisionError"
    assert [event.name for event in exported_span.events] == ["exception"]


def test_share_record_has_its_delivery_count(provider: TracerProvider, exported: InMemorySpanExporter) -> None:
    headers: dict[str, str] = {}
    with provider.get_tracer("app").start_as_current_span("send"):
        TraceContextTextMapPropagator().inject(headers)
    sent = exported.get_finished_spans()[0]
    exported.clear()
    share_record = ShareRecord("orders", 0, "text", b"v", [(k, v.encode()) for k, v in headers.items()], 0, 7, 0, 2, 9)
    with processing_span(share_record, tracer_provider=provider):
        pass
    exported_span = only(exported)
    assert exported_span.attributes is not None
    assert exported_span.attributes["ksp.delivery_count"] == 2
    assert exported_span.parent is not None
    assert sent.context is not None
    assert exported_span.parent.span_id == sent.context.span_id


def test_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(TracingMissing, match=r"pip install 'kafka-share-proxy\[tracing\]'"), processing_span(record()):
        pass


def test_consumers_load_nothing_of_opentelemetry() -> None:
    program = "import sys, kafka_share_proxy as k; k.open_consumer, k.open_share_consumer, k.processing_span\n"
    program += "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
    assert "processing_span" in dir(kafka_share_proxy)
