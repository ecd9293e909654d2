"""Spans of OpenTelemetry for requests that are served here (app/README.md rule 19).

Names and attributes are those of the semantic conventions for messaging, 1.45, where they have one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.forwarding.served.tracing import ServedRequest, UpstreamRequest
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.frame_sizes import SIZE
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

    Attributes = dict[str, str | int | bool]

SERVICE = "kafka-share-proxy"
LOGGER = "opentelemetry"
"""Logger of OpenTelemetry, for what it cannot export."""
RECEIVE, SETTLE, SEND = "receive", "settle", "send"
OPERATIONS: Mapping[int, str] = {
    ApiKey.PRODUCE: SEND,
    ApiKey.FETCH: RECEIVE,
    ApiKey.SHARE_FETCH: RECEIVE,
    ApiKey.SHARE_ACKNOWLEDGE: SETTLE,
    ApiKey.OFFSET_COMMIT: SETTLE,
    ApiKey.TXN_OFFSET_COMMIT: SETTLE,
}
"""messaging.operation.type of the APIs that have one."""
CANCELLED = "client_left"
DECODED_BYTES_MAX = 256 << 10
"""Largest frame that is decoded for its error code and its number of records."""
TopicName = Callable[[bytes], str | None]


def provider(version: str, proxy: str, sample_ratio: float) -> TracerProvider:
    """Return a provider that exports by OTLP over HTTP, to where the variables OTEL_EXPORTER_OTLP_* say."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    about = {"service.name": SERVICE, "service.version": version, "service.instance.id": proxy}
    tracer_provider = TracerProvider(resource=Resource.create(about), sampler=TraceIdRatioBased(sample_ratio))
    tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return tracer_provider


class ToNotes(logging.Handler):
    """Passes what OpenTelemetry logs, from its own thread, to the log of the proxy."""

    def __init__(self, note: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())


def redirect(note: Callable[[str], object]) -> None:
    """Let `note` receive what OpenTelemetry logs, in place of standard error."""
    logger = logging.getLogger(LOGGER)
    logger.handlers[:] = [ToNotes(note)]
    logger.propagate = False


class Spans:
    """Recorder of served requests as spans."""

    def __init__(self, tracer: Tracer, topic_name: TopicName) -> None:
        """`topic_name` returns the name of a topic id, or None."""
        from opentelemetry import context, trace

        self._trace = trace
        self._no_parent = context.Context()
        self._tracer = tracer
        self._topic_name = topic_name

    def record(self, served: ServedRequest) -> None:
        """Make a span of the request, and one below it for each request upstream."""
        call, kinds = served.call, self._trace.SpanKind
        api, topics = registry.API_KEYS[call.key], set(self._topics(call.message))
        topic = topics.pop() if len(topics) == 1 else None
        span = self._tracer.start_span(
            api if topic is None else f"{api} {topic}",
            context=self._no_parent,
            kind=kinds.SERVER,
            start_time=served.begun_ns,
        )
        if span.is_recording():
            response = _decoded(served)
            span.set_attributes(_attributes(served, response, api, topic))
            self._set_error(span, _error_of(served, response))
            for sent in served.upstream:
                self._record_upstream(span, sent, call.connection.node_id)
        span.end(served.ended_ns)

    def _record_upstream(self, parent: Span, sent: UpstreamRequest, node_id: int) -> None:
        span = self._tracer.start_span(
            registry.API_KEYS[sent.key],
            context=self._trace.set_span_in_context(parent),
            kind=self._trace.SpanKind.CLIENT,
            start_time=sent.begun_ns,
            attributes=_api(registry.API_KEYS[sent.key], sent.key, sent.version) | {"ksp.broker.id": node_id},
        )
        if sent.ended_ns == 0:
            span.set_attribute("ksp.response.awaited", False)
        self._set_error(span, "" if sent.error is None else type(sent.error).__name__)
        span.end(sent.ended_ns or None)

    def _set_error(self, span: Span, error: str) -> None:
        if error:
            span.set_attribute("error.type", error)
            span.set_status(self._trace.StatusCode.ERROR)

    def _topics(self, message: Any) -> Iterator[str | None]:
        """Yield the names of the topics in a request, None for each unknown one."""
        for topic in getattr(message, "topics", None) or ():
            if isinstance(topic, str):
                yield topic
                continue
            topic_id = getattr(topic, "topic_id", None)
            name = getattr(topic, "topic", None) or getattr(topic, "name", None)
            if not name and topic_id is not None:
                name = self._topic_name(topic_id)
            yield name or None


def _api(api: str, key: int, version: int) -> Attributes:
    attributes: Attributes = {"messaging.system": "kafka", "messaging.operation.name": api, "ksp.api.version": version}
    if key in OPERATIONS:
        attributes["messaging.operation.type"] = OPERATIONS[key]
    return attributes


def _decoded(served: ServedRequest) -> Message | None:
    """Return the response as a message. None if there is none, or a large or unreadable frame."""
    call, response = served.call, served.response
    if response is None or isinstance(response, Message):
        return response
    if len(response) > DECODED_BYTES_MAX or isinstance(call.message, memoryview):
        return None
    try:
        decoded: Message = frames.decode_response(call.key, call.version, memoryview(bytes(response))[SIZE.size :])[1]
    except ProxyError:  # a response of another version, as to an unsupported ApiVersions
        return None
    return decoded


def _attributes(served: ServedRequest, response: Message | None, api: str, topic: str | None) -> Attributes:
    call = served.call
    attributes = _api(api, call.key, call.version) | {"client.address": call.connection.client_host}
    optional = {
        "messaging.client.id": call.client_id,
        "messaging.consumer.group.name": getattr(call.message, "group_id", None),
        "messaging.destination.name": topic,
        "messaging.batch.message_count": _acquired(response),
        "ksp.upstream.left_out": served.upstream_left_out or None,
    }
    return attributes | {name: value for name, value in optional.items() if value is not None}


def _acquired(response: object) -> int | None:
    """Return the number of records that a ShareFetch has acquired."""
    if not isinstance(response, messages.ShareFetchResponse):
        return None
    partitions = (each for topic in response.responses for each in topic.partitions)
    return sum(run.last_offset - run.first_offset + 1 for each in partitions for run in each.acquired_records)


def _error_of(served: ServedRequest, response: Message | None) -> str:
    if isinstance(served.error, GeneratorExit):
        return CANCELLED
    if served.error is not None:
        return type(served.error).__name__
    code = getattr(response, "error_code", 0)
    return ErrorCode.of(code).name if code else ""
