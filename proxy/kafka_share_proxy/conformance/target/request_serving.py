"""One request of a connection: decoded, judged, executed or replaced by faults, and encoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from kafka_share_proxy.conformance.judge.events import FrameRefused, ReceivedRequest, SentResponse
from kafka_share_proxy.conformance.judge.judge import Judge
from kafka_share_proxy.conformance.target import fault_effects
from kafka_share_proxy.conformance.target.apis import k18_api_versions
from kafka_share_proxy.conformance.target.authentication import MECHANISMS, Authentication
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.fault_effects import Outgoing
from kafka_share_proxy.conformance.target.faults import Fault, FaultPlan
from kafka_share_proxy.conformance.target.interfaces import ClientPeer, ConnectionEnds, Handler, TargetCall
from kafka_share_proxy.conformance.target.served_apis import SASL_VERSIONS
from kafka_share_proxy.conformance.target.unserved_requests import refusal
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError

BEFORE_LOGIN = frozenset({ApiKey.API_VERSIONS, *SASL_VERSIONS})

BeforeRequest = Callable[[int, int, str], Awaitable[None]]
"""Awaited with API key, node and client id before a request is executed."""

CLOSED = Outgoing(b"", closes=True)


@dataclass(kw_only=True, eq=False)
class ServedCluster:
    """A cluster with all that serves it."""

    cluster: TargetCluster
    handlers: Mapping[int, Handler]
    """Handlers by API key."""
    judge: Judge
    faults: FaultPlan
    users: dict[str, str] = field(default_factory=dict)
    """Passwords by user. Empty: no SASL."""
    mechanisms: tuple[str, ...] = MECHANISMS
    strict: bool = False
    """True: a finding of severity "error" ends the connection."""
    before_request: list[BeforeRequest] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    """Errors of handlers: faults of this package, not of clients."""


class ServedConnection:
    """The requests of one connection, one at a time."""

    def __init__(self, served: ServedCluster, peer: ClientPeer) -> None:
        self._served = served
        self._peer = peer
        self._authentication = Authentication(served.users, served.mechanisms)
        self._received_at = 0.0
        """Arrival of the request that is served."""
        self._raw_tokens = False
        """True after SaslHandshake v0: tokens follow without a Kafka header (KIP-43)."""

    @property
    def must_authenticate(self) -> bool:
        """True until the login that the cluster requires is complete."""
        return self._authentication.is_required

    async def serve(self, frame: bytes, received_at: float) -> Outgoing:
        """Serve one request frame without size. Waits with the clock of the cluster.

        Raises RemoteProtocolError if the frame has no header.
        """
        self._received_at = received_at
        if self._raw_tokens and self.must_authenticate:
            return self._raw_token(frame)
        key, version, correlation_id = headers.peek(frame)
        lowest, highest = self._served.cluster.offered.get(key, (0, -1))
        if not lowest <= version <= highest:
            return self._not_offered(key, version, correlation_id, frame)
        try:
            header, position = headers.decode_request_header(frame)
            request, end = registry.request(key, version).decode_prefix(frame, position)
        except RemoteProtocolError as error:
            self._refuse(key, version, correlation_id, frame, str(error))
            return CLOSED
        return await self._serve(header, request, frame, len(frame) - end)

    async def _serve(self, header: RequestHeader, request: Any, frame: bytes, unread: int) -> Outgoing:
        received = ReceivedRequest(
            **self._frame_fields(header.key, header.version, header.correlation_id, frame, header.client_id or ""),
            request=request,
            unread=unread,
            must_authenticate=self.must_authenticate,
        )
        findings = self._served.judge.observe(received)
        if self._served.strict and any(finding.rule.severity == "error" for finding in findings):
            return CLOSED
        if self.must_authenticate and header.key not in BEFORE_LOGIN:
            return CLOSED
        for callback in tuple(self._served.before_request):
            await callback(header.key, self._peer.node_id, received.client_id)
        faults = self._served.faults.match(header.key, self._peer.node_id, received.client_id)
        try:
            response = await self._response(header, request, faults)
        except ConnectionEnds:
            return CLOSED
        await self._served.cluster.clock.sleep(fault_effects.delay_s(faults))
        if response is not None:
            fault_effects.amend(faults, header.version, response)
        hidden = any(fault.hides_outcome for fault in faults)
        self._served.judge.observe(
            SentResponse(at=trio.current_time(), received=received, response=response, delivered=not hidden)
        )
        return self._outgoing(header, response, faults)

    async def _response(self, header: RequestHeader, request: Any, faults: list[Fault]) -> Message | None:
        replaced = fault_effects.replacement(faults, header.key, header.version, request)
        if replaced is not None:
            return replaced
        if header.key == ApiKey.SASL_HANDSHAKE:
            response = self._authentication.handshake(request)
            self._raw_tokens = header.version == 0 and response.error_code == ErrorCode.NONE
            return response
        if header.key == ApiKey.SASL_AUTHENTICATE:
            return self._authentication.authenticate(request)
        call = TargetCall(self._served.cluster, self._peer, header, request)
        return await self._served.handlers[header.key](call)

    def _outgoing(self, header: RequestHeader, response: Message | None, faults: list[Fault]) -> Outgoing:
        if response is None:
            return Outgoing(b"")
        correlation_id = fault_effects.shifted(faults, header.correlation_id)
        data = bytes(frames.response_frame(header.key, header.version, correlation_id, response))
        outgoing = fault_effects.outgoing(faults, data)
        refused = header.key == ApiKey.SASL_AUTHENTICATE and self.must_authenticate and _is_refused(response)
        return Outgoing(outgoing.data, outgoing.closes or refused)

    def _not_offered(self, key: int, version: int, correlation_id: int, frame: bytes) -> Outgoing:
        findings = self._refuse(key, version, correlation_id, frame, "the version is not offered")
        if key == ApiKey.API_VERSIONS:
            response = k18_api_versions.offered_versions(self._served.cluster, ErrorCode.UNSUPPORTED_VERSION)
            return Outgoing(frames.response(key, 0, correlation_id, response))
        if findings and self._served.strict:
            return CLOSED
        is_served = key in self._served.cluster.offered
        data = None if self.must_authenticate or is_served else refusal(key, version, correlation_id)
        return CLOSED if data is None else Outgoing(data)

    def _raw_token(self, frame: bytes) -> Outgoing:
        response = self._authentication.token_response(frame)
        if response is None:
            return CLOSED
        return Outgoing(len(response).to_bytes(4, "big") + response)

    def _refuse(self, key: int, version: int, correlation_id: int, frame: bytes, reason: str) -> bool:
        fields = self._frame_fields(key, version, correlation_id, frame, _client_id(frame))
        return bool(self._served.judge.observe(FrameRefused(**fields, reason=reason)))

    def _frame_fields(
        self, key: int, version: int, correlation_id: int, frame: bytes, client_id: str
    ) -> dict[str, Any]:
        return {
            "at": trio.current_time(),
            "received_at": self._received_at,
            "connection": self._peer.number,
            "node": self._peer.node_id,
            "host": self._peer.host,
            "key": key,
            "version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
            "frame": frame,
        }


def _client_id(frame: bytes) -> str:
    """Return the client id of a header whose API may be unknown; empty if there is none."""
    start = headers.CLIENT_ID_AT
    length = int.from_bytes(frame[start - 2 : start], "big", signed=True)
    return frame[start : start + length].decode("utf-8", "replace") if length > 0 else ""


def _is_refused(response: Any) -> bool:
    return bool(response.error_code != ErrorCode.NONE)
