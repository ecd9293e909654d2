"""Requests and responses of one traced connection: decoded, and matched to each other by correlation id.

Responses arrive in the order of the requests (forwarding/README.md rule 22). One whose request is not known belongs to
a request from before the trace, and is not decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

from kafka_share_proxy.forwarding.client_trace.described_messages import described
from kafka_share_proxy.forwarding.client_trace.frame_collector import CollectedFrame
from kafka_share_proxy.wire.codec import headers, prefixes
from kafka_share_proxy.wire.codec.compiler import Codec
from kafka_share_proxy.wire.codec.frame_sizes import REQUEST_MIN, RESPONSE_MIN
from kafka_share_proxy.wire.codec.prefixes import FieldOf
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.registry import UnknownVersion
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError, TooManyElements

ELEMENTS_MAX = 2_000
"""Maximum number of array elements of a message that is decoded: about 5 ms. Larger ones have their size only."""

Entry = dict[str, Any]
"""One request or response, as JSON values."""
T = TypeVar("T")


class _Sent(NamedTuple):
    """Request without a response yet."""

    correlation_id: int
    key: int
    version: int
    at: float


class Exchanges:
    """Requests in flight on one connection."""

    def __init__(self, is_raw: Callable[[], bool], listed: Callable[[], Mapping[bytes, object]]) -> None:
        """`is_raw`: True while the client may send SASL tokens without headers (KIP-43). `listed`: known requests."""
        self._is_raw = is_raw
        self._listed = listed
        self._sent: deque[_Sent | None] = deque()
        """None: a raw SASL token."""

    def request(self, frame: CollectedFrame, now: float) -> Entry:
        """Return the entry of a request."""
        data = frame.data
        if self._is_raw() and data[:4] not in self._listed():
            self._sent.append(None)
            return {"request": "SASL token", "bytes": frame.size}
        while self._sent and self._sent[-1] is None:  # tokens without a response
            self._sent.pop()
        if len(data) < REQUEST_MIN:
            return {"request": "unknown", "bytes": frame.size}
        key, version, correlation_id = headers.peek(data)
        entry: Entry = {
            "request": registry.API_KEYS.get(key, str(key)),
            "version": version,
            "correlation_id": correlation_id,
            "bytes": frame.size,
        }
        if not _expects_no_response(key, version, frame):
            self._sent.append(_Sent(correlation_id, key, version, now))
        try:
            header, position = headers.decode_request_header(data)
            entry["client_id"] = header.client_id
            entry |= _body(registry.request(key, version), version, frame, position)
        except (RemoteProtocolError, UnknownVersion) as error:
            entry["not_decoded"] = str(error)
        return entry

    def response(self, frame: CollectedFrame, now: float) -> Entry:
        """Return the entry of a response."""
        if self._sent and self._sent[0] is None:
            self._sent.popleft()
            return {"response": "SASL token", "bytes": frame.size}
        if len(frame.data) < RESPONSE_MIN:
            return {"response": "unknown", "bytes": frame.size}
        correlation_id = headers.correlation_id(frame.data)
        sent = self._request_of(correlation_id)
        if sent is None:
            reason = "its request was sent before the trace began"
            return {"response": "unknown", "correlation_id": correlation_id, "bytes": frame.size, "not_decoded": reason}
        entry: Entry = {
            "response": registry.API_KEYS.get(sent.key, str(sent.key)),
            "version": sent.version,
            "correlation_id": correlation_id,
            "bytes": frame.size,
            "ms": round((now - sent.at) * 1e3, 3),
        }
        try:
            entry |= _response_body(sent, frame)
        except (RemoteProtocolError, UnknownVersion) as error:
            entry["not_decoded"] = str(error)
        return entry

    def _request_of(self, correlation_id: int) -> _Sent | None:
        """Remove the request of a response, and those before it, which had no response."""
        for number, sent in enumerate(self._sent):
            if sent is not None and sent.correlation_id == correlation_id:
                for _ in range(number + 1):
                    self._sent.popleft()
                return sent
        return None


def _expects_no_response(key: int, version: int, frame: CollectedFrame) -> bool:
    if key != ApiKey.PRODUCE:
        return False
    try:
        return bool(prefixes.of_request(key, version, FieldOf("Acks"))(memoryview(frame.data), frame.size) == 0)
    except (RemoteProtocolError, UnknownVersion):
        return False


def _response_body(sent: _Sent, frame: CollectedFrame) -> Entry:
    position = headers.response_body_offset(sent.key, sent.version, frame.data)
    error_code = int.from_bytes(frame.data[position : position + 2], "big")
    if sent.key == ApiKey.API_VERSIONS and error_code == ErrorCode.UNSUPPORTED_VERSION:
        return {"body": {"ErrorCode": error_code}}  # the broker responds with version 0 (KIP-511)
    return _body(registry.response(sent.key, sent.version), sent.version, frame, position)


def _body(codec: Codec[Any], version: int, frame: CollectedFrame, position: int) -> Entry:
    if not frame.is_whole:
        return {"not_decoded": f"larger than {len(frame.data)} bytes"}
    try:
        return {"body": described(_driven(codec.decode_in_slices(frame.data, position, ELEMENTS_MAX)), version)}
    except TooManyElements:
        return {"not_decoded": f"more than {ELEMENTS_MAX} elements"}


def _driven(pieces: Generator[None, None, T]) -> T:
    while True:
        try:
            next(pieces)
        except StopIteration as stop:
            value: T = stop.value
            return value
