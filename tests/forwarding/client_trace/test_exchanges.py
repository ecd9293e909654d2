"""Requests and responses of one connection: matched, decoded, or described by their size."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.forwarding.client_trace import exchanges
from kafka_share_proxy.forwarding.client_trace.exchanges import ELEMENTS_MAX, Exchanges
from kafka_share_proxy.forwarding.client_trace.frame_collector import CollectedFrame
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

METADATA_VERSION = 12


def new_exchanges() -> Exchanges:
    return Exchanges(lambda: False, dict)


def frame(data: bytes) -> CollectedFrame:
    return CollectedFrame(data[4:], len(data) - 4)


def requested(each: Exchanges, key: int, version: int, number: int, message: Any, at: float = 0.0) -> exchanges.Entry:
    return each.request(frame(frames.request(key, version, number, "app", message)), at)


def responded(each: Exchanges, key: int, version: int, number: int, message: Any, at: float = 0.0) -> exchanges.Entry:
    return each.response(frame(frames.response(key, version, number, message)), at)


def test_a_response_has_the_time_since_its_request() -> None:
    each = new_exchanges()
    requested(each, ApiKey.HEARTBEAT, 4, 7, messages.HeartbeatRequest(), 1.0)
    entry = responded(each, ApiKey.HEARTBEAT, 4, 7, messages.HeartbeatResponse(error_code=27), 1.25)
    assert (entry["response"], entry["ms"], entry["body"]["ErrorCode"]) == ("Heartbeat", 250.0, 27)


def test_a_produce_without_acks_leaves_no_request() -> None:
    each = new_exchanges()
    requested(each, ApiKey.PRODUCE, 9, 1, messages.ProduceRequest(acks=0, timeout_ms=1))
    requested(each, ApiKey.HEARTBEAT, 4, 1, messages.HeartbeatRequest())
    assert responded(each, ApiKey.HEARTBEAT, 4, 1, messages.HeartbeatResponse())["response"] == "Heartbeat"


def test_a_response_to_an_earlier_request_is_not_decoded() -> None:
    each = new_exchanges()
    requested(each, ApiKey.HEARTBEAT, 4, 8, messages.HeartbeatRequest())
    entry = responded(each, ApiKey.METADATA, METADATA_VERSION, 7, messages.MetadataResponse())
    assert (entry["response"], "body" in entry) == ("unknown", False)
    assert responded(each, ApiKey.HEARTBEAT, 4, 8, messages.HeartbeatResponse())["response"] == "Heartbeat"


def test_a_message_with_many_elements_has_its_size_only() -> None:
    topics = [messages.MetadataRequest.MetadataRequestTopic(name=f"t{n}") for n in range(ELEMENTS_MAX + 1)]
    entry = requested(new_exchanges(), ApiKey.METADATA, METADATA_VERSION, 1, messages.MetadataRequest(topics=topics))
    assert (entry["request"], entry["not_decoded"]) == ("Metadata", f"more than {ELEMENTS_MAX} elements")


def test_a_frame_that_was_collected_in_part_is_not_decoded() -> None:
    data = frames.request(ApiKey.PRODUCE, 9, 3, "app", messages.ProduceRequest(acks=0, timeout_ms=1))[4:]
    each = new_exchanges()
    entry = each.request(CollectedFrame(data[:-1], len(data) + 1000), 0.0)
    assert (entry["request"], entry["client_id"], "body" in entry) == ("Produce", "app", False)
    assert entry["bytes"] == len(data) + 1000


def test_unreadable_requests_are_named_by_key_and_version() -> None:
    entry = new_exchanges().request(CollectedFrame(b"\x03\xe7\0\x01\0\0\0\x05rest", 12), 0.0)
    assert (entry["request"], entry["version"], "body" in entry) == ("999", 1, False)
    assert new_exchanges().request(CollectedFrame(b"abc", 3), 0.0)["request"] == "unknown"
    assert new_exchanges().response(CollectedFrame(b"abc", 3), 0.0)["response"] == "unknown"


def test_the_refusal_of_a_version_of_api_versions_is_read_as_version_0() -> None:
    each = new_exchanges()
    requested(each, ApiKey.API_VERSIONS, 4, 1, messages.ApiVersionsRequest(client_software_name="x"))
    refusal = frames.response(ApiKey.API_VERSIONS, 0, 1, messages.ApiVersionsResponse(error_code=35))
    assert each.response(frame(refusal), 0.0)["body"] == {"ErrorCode": 35}
