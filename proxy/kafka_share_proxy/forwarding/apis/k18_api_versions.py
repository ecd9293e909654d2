"""ApiVersions (key 18): forwarded, with the response limited to what this proxy offers. From v5 on served here.

Rules: forwarding/README.md 15 to 18. The response header is always v0 (KIP-511). The versions in a new response of a
known broker are stored for the proxy's own requests.
"""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi
from kafka_share_proxy.forwarding.dispatch.offered_versions import CAPS, EffectiveVersions, offer_to_client, ranges_of
from kafka_share_proxy.forwarding.dispatch.routes import Context, Kind, Rewrite, Route
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE

KEY = ApiKey.API_VERSIONS

_CORRELATION = 4
_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def rewriter(version: int, versions: EffectiveVersions) -> Rewrite:

    def rewrite(frame: memoryview, context: Context) -> bytes:
        unsupported = frame[_CORRELATION : _CORRELATION + 2] == _UNSUPPORTED
        body_version = 0 if unsupported else version
        response: messages.ApiVersionsResponse
        correlation_id, response = frames.decode_response(KEY, body_version, frame)
        if response.error_code == ErrorCode.NONE and context.node_id != UNKNOWN_NODE:
            versions.learn(context.node_id, ranges_of(response))
        offer_to_client(response, body_version, versions.offer)
        return frames.response(KEY, body_version, correlation_id, response)

    return rewrite


def unsupported_version(version: int) -> Route:
    return Route(kind=Kind.LOCAL, key=KEY, version=version, handler=handle, opaque=True, needs_no_authentication=True)


async def handle(call: Call[memoryview]) -> bytes:
    """Return the supported versions of ApiVersions (body v0, error 35)."""
    message = messages.ApiVersionsResponse
    supported = message.ApiVersion(api_key=KEY, min_version=registry.versions(KEY)[0], max_version=CAPS[KEY])
    response = message(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[supported])
    return bytes(frames.response(KEY, 0, call.correlation_id, response))


API = ForwardedApi(key=KEY, rewrite=lambda version, parts: rewriter(version, parts.versions), responses_repeat=True)
