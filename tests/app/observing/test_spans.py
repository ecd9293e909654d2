"""Spans of served requests, in OpenTelemetry's in-memory exporter."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.app.observing import spans
from kafka_share_proxy.app.observing.spans import Spans
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.tracing import ServedRequest, UpstreamRequest
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import client_attributes, error_attributes
from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
from opentelemetry.trace import SpanKind, StatusCode

TOPIC_ID = bytes(15) + b"\1"
CONNECTION: Any = SimpleNamespace(id=1, client_host="10.0.0.7", node_id=3)


class Recorded:
    """Spans that are exported as soon as they end."""

    def __init__(self, sampler: Any = None) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = Spans(provider.get_tracer("test"), {TOPIC_ID: "orders"}.get)

    def of(self, served: ServedRequest) -> list[ReadableSpan]:
        """Return the new spans, that of the request first."""
        self._exporter.clear()
        self.spans.record(served)
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.parent is not None)


def share_fetch(*topic_ids: bytes) -> messages.ShareFetchRequest:
    request = messages.ShareFetchRequest(group_id="billing", member_id="m")
    request.topics = [request.FetchTopic(topic_id=each, partitions=[]) for each in topic_ids]
    return request


def served(message: Any, key: int = ApiKey.SHARE_FETCH, version: int = 2, **outcome: Any) -> ServedRequest:
    call = Call(key=key, version=version, correlation_id=1, client_id="app-1", message=message, connection=CONNECTION)
    return ServedRequest(
        call, begun_ns=1_000, ended_ns=9_000, **({"response": messages.ShareFetchResponse()} | outcome)
    )


def with_records() -> messages.ShareFetchResponse:
    """Return a response with ten acquired records."""
    response = messages.ShareFetchResponse()
    runs = [messages.ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=first + 4) for first in (0, 90)]
    partition = messages.ShareFetchResponse.PartitionData(partition_index=0, records=b"", acquired_records=runs)
    response.responses = [messages.ShareFetchResponse.ShareFetchableTopicResponse(partitions=[partition])]
    return response


def frame(response: messages.ShareFetchResponse) -> bytes:
    return frames.response(ApiKey.SHARE_FETCH, 2, 1, response)


@pytest.mark.parametrize("response", [with_records(), frame(with_records())])
def test_share_fetch_is_one_span_with_the_attributes_of_the_conventions(response: Any) -> None:
    (span,) = Recorded().of(served(share_fetch(TOPIC_ID), response=response))
    assert (span.name, span.kind, span.parent) == ("ShareFetch orders", SpanKind.SERVER, None)
    assert (span.start_time, span.end_time) == (1_000, 9_000)
    assert span.attributes == {
        messaging.MESSAGING_SYSTEM: "kafka",
        messaging.MESSAGING_OPERATION_NAME: "ShareFetch",
        messaging.MESSAGING_OPERATION_TYPE: "receive",
        messaging.MESSAGING_CONSUMER_GROUP_NAME: "billing",
        messaging.MESSAGING_CLIENT_ID: "app-1",
        messaging.MESSAGING_DESTINATION_NAME: "orders",
        messaging.MESSAGING_BATCH_MESSAGE_COUNT: 10,
        client_attributes.CLIENT_ADDRESS: "10.0.0.7",
        "ksp.api.version": 2,
    }


def test_large_frame_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    response = frame(with_records())
    monkeypatch.setattr(spans, "DECODED_BYTES_MAX", len(response) - 1)
    (span,) = Recorded().of(served(share_fetch(TOPIC_ID), response=response))
    assert messaging.MESSAGING_BATCH_MESSAGE_COUNT not in (span.attributes or {})


@pytest.mark.parametrize("response", [b"", b"\0\0\0\4none", frame(with_records())[:40]])
def test_frame_that_is_not_readable_has_a_span_without_its_figures(response: bytes) -> None:
    (span,) = Recorded().of(served(share_fetch(TOPIC_ID), response=response))
    assert messaging.MESSAGING_BATCH_MESSAGE_COUNT not in (span.attributes or {})
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("topic_ids", [(), (TOPIC_ID, bytes(16)), (b"unknown.unknown.",)])
def test_request_without_one_known_topic_has_no_destination(topic_ids: tuple[bytes, ...]) -> None:
    (span,) = Recorded().of(served(share_fetch(*topic_ids)))
    assert span.attributes is not None
    assert (span.name, messaging.MESSAGING_DESTINATION_NAME in span.attributes) == ("ShareFetch", False)


def test_topics_by_name_are_destinations() -> None:
    commit = messages.OffsetCommitRequest(group_id="g")
    commit.topics = [commit.OffsetCommitRequestTopic(name="orders")]
    beat = messages.ShareGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["a", "b"])
    recorded = Recorded()
    (span,) = recorded.of(served(commit, ApiKey.OFFSET_COMMIT, 9))
    assert span.attributes is not None
    assert (span.name, span.attributes[messaging.MESSAGING_OPERATION_TYPE]) == ("OffsetCommit orders", "settle")
    (span,) = recorded.of(served(beat, ApiKey.SHARE_GROUP_HEARTBEAT, 1))
    assert span.attributes is not None
    assert (span.name, messaging.MESSAGING_OPERATION_TYPE in span.attributes) == ("ShareGroupHeartbeat", False)


def test_requests_upstream_are_spans_of_the_same_trace_below_it() -> None:
    answered = UpstreamRequest(ApiKey.FETCH, 15, 2_000, 5_000)
    lost = UpstreamRequest(ApiKey.METADATA, 12, 5_000, 6_000, UpstreamLost("gone"))
    open_still = UpstreamRequest(ApiKey.LIST_OFFSETS, 7, 7_000)
    span, *below = Recorded().of(served(share_fetch(TOPIC_ID), upstream=[answered, lost, open_still]))
    assert span.context is not None
    for each in below:
        assert each.context is not None
        assert each.parent is not None
        assert (each.parent.span_id, each.context.trace_id) == (span.context.span_id, span.context.trace_id)
        assert each.kind is SpanKind.CLIENT
        assert each.attributes is not None
        assert each.attributes["ksp.broker.id"] == 3
    by_name = {each.name: each for each in below}
    assert set(by_name) == {"Fetch", "Metadata", "ListOffsets"}
    assert (by_name["Fetch"].start_time, by_name["Fetch"].end_time) == (2_000, 5_000)
    assert by_name["Metadata"].status.status_code is StatusCode.ERROR
    assert (by_name["Metadata"].attributes or {})[error_attributes.ERROR_TYPE] == "UpstreamLost"
    assert (by_name["ListOffsets"].attributes or {})["ksp.response.awaited"] is False


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ({"response": messages.ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)},
         "GROUP_AUTHORIZATION_FAILED"),
        ({"response": frame(messages.ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST))}, "INVALID_REQUEST"),
        ({"response": None, "error": UpstreamLost("gone")}, "UpstreamLost"),
        ({"response": None, "error": GeneratorExit()}, "client_left"),
    ],
)  # fmt: skip
def test_failed_request_has_a_type_of_error(outcome: dict[str, Any], error: str) -> None:
    (span,) = Recorded().of(served(share_fetch(TOPIC_ID), **outcome))
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})[error_attributes.ERROR_TYPE] == error


def test_request_that_is_not_sampled_has_no_spans() -> None:
    upstream = [UpstreamRequest(ApiKey.FETCH, 15, 2_000, 5_000)]
    assert Recorded(ALWAYS_OFF).of(served(share_fetch(TOPIC_ID), upstream=upstream)) == []


def test_each_request_is_a_separate_trace() -> None:
    recorded = Recorded()
    contexts = [recorded.of(served(share_fetch(TOPIC_ID)))[0].context for _ in range(2)]
    assert len({each.trace_id for each in contexts if each is not None}) == 2


def test_provider_names_service_version_and_proxy_and_samples() -> None:
    provider = spans.provider("0.2.0", "proxy:9092", 0.0)
    try:
        attributes = provider.resource.attributes
        names = ("service.name", "service.version", "service.instance.id")
        assert [attributes[name] for name in names] == ["kafka-share-proxy", "0.2.0", "proxy:9092"]
        assert not provider.get_tracer("x").start_span("y").is_recording()
    finally:
        provider.shutdown()


def test_what_opentelemetry_cannot_export_is_in_the_log_of_the_proxy(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger(spans.LOGGER)
    before, propagated = logger.handlers[:], logger.propagate
    noted: list[str] = []
    try:
        spans.redirect(noted.append)
        logging.getLogger("opentelemetry.exporter").warning("Transient error %s", "X")
    finally:
        logger.handlers[:], logger.propagate = before, propagated
    assert noted == ["Transient error X"]
    assert capfd.readouterr().err == ""


def test_a_proxy_without_tracing_loads_nothing_of_opentelemetry() -> None:
    program = (
        "import sys; from kafka_share_proxy.app.serving import server; print([m for m in sys.modules if 'telem' in m])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
