"""Spans of OpenTelemetry for the processing of records (client/README.md rule 40).

The context of the producer is read from the headers `traceparent` and `tracestate` of a record (W3C Trace Context).
Names and attributes are those of the semantic conventions for messaging, 1.45. Without calls of this module nothing of
OpenTelemetry is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.client.polled_records import ConsumerRecord
from kafka_share_proxy.client.share_records import ShareRecord
from kafka_share_proxy.wire.errors import ProxyError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

    Attributes = dict[str, str | int | bool]

TRACER = "kafka_share_proxy"
PROCESS = "process"
CONTEXT_HEADERS = ("traceparent", "tracestate")


class TracingMissing(ProxyError, ImportError):
    """OpenTelemetry is not installed."""

    def __init__(self) -> None:
        super().__init__("OpenTelemetry is not installed: pip install 'kafka-share-proxy[tracing]'")


@contextmanager
def processing_span(
    *records: ConsumerRecord | ShareRecord,
    group: str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Iterator[Span]:
    """Open a span for the processing of records, with links to the spans of their producers.

    The span of one record is in the trace of its producer, unless there is a current span. An exception is recorded.

        async with consumer.work(record):
            with processing_span(record, group="billing"):
                await process(record)

    Args:
        records: one record, or those that are processed together.
        group: group of the consumer.
        tracer_provider: unset: the global one.

    Raises:
        TracingMissing: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import trace
    except ImportError:
        raise TracingMissing from None
    contexts = [context_of(record) for record in records]
    is_alone = len(records) == 1 and not trace.get_current_span().get_span_context().is_valid
    topics = {record.topic for record in records}
    span = trace.get_tracer(TRACER, tracer_provider=tracer_provider).start_span(
        f"{PROCESS} {topics.copy().pop()}" if len(topics) == 1 else PROCESS,
        context=contexts[0] if is_alone else None,
        kind=trace.SpanKind.CONSUMER,
        attributes=_attributes(records, topics, group),
        links=list(_links(contexts)),
    )
    with trace.use_span(span, end_on_exit=True, record_exception=True, set_status_on_exception=True):
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            raise


def context_of(record: ConsumerRecord | ShareRecord) -> Context:
    """Return the producer's context. It is empty if the record has none, or an invalid one."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    for name, value in record.headers:
        if name.lower() in CONTEXT_HEADERS and value is not None:
            headers.setdefault(name.lower(), value.decode("ascii", "replace"))
    return TraceContextTextMapPropagator().extract(headers, Context())


def _links(contexts: Sequence[Context]) -> Iterator[Link]:
    """Yield a link for each producer's span."""
    from opentelemetry.trace import Link, get_current_span

    for context in contexts:
        producer = get_current_span(context).get_span_context()
        if producer.is_valid:
            yield Link(producer)


def _attributes(records: Sequence[ConsumerRecord | ShareRecord], topics: set[str], group: str | None) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": PROCESS,
        "messaging.operation.type": PROCESS,
    }
    if len(topics) == 1:
        attributes["messaging.destination.name"] = records[0].topic
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    if len(records) != 1:
        return attributes | {"messaging.batch.message_count": len(records)}
    (record,) = records
    attributes |= {"messaging.destination.partition.id": str(record.partition), "messaging.kafka.offset": record.offset}
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    if isinstance(record, ShareRecord):
        attributes["ksp.delivery_count"] = record.delivery_count
    return attributes | _key(record.key)


def _key(key: Any) -> Attributes:
    """Return the key if it is text."""
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return {}
    return {"messaging.kafka.message.key": key} if isinstance(key, str) else {}
