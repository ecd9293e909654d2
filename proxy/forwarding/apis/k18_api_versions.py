"""ApiVersions (key 18): forwarded, and the broker's answer cut to what this proxy offers; from v5 on answered here.

Behaviour
- v0 to the highest offered version go to the broker; `forwarding.offered_versions` says what becomes of its answer. The
  response header is v0 whatever the body (KIP-511).
- Where the broker does not know the version it answers error 35 with body v0: that is understood, and passed on with
  the version range of ApiVersions (at most what is offered here), so that the client repeats the question.
- A version above those offered is answered here in the same way, without reading the body, whose layout may be
  unknown. So it is with v5 (KIP-1242), in which a client names the cluster and node it expects to reach.
- Other errors pass as they came.
- What a broker says is remembered for questions of our own, as far as its answers are new (they are cached by bytes)
  and it is known which broker it was; the proxy's own look at the cluster finds the rest.

KIPs: 511, 584 (features), 1242. Skipped: v5.
"""

from __future__ import annotations

from proxy.forwarding.forwarded_api import ForwardedApi
from proxy.forwarding.interfaces import Call
from proxy.forwarding.offered_versions import CAPS, EffectiveVersions, offer_to_client, ranges_of
from proxy.forwarding.routes import Context, Kind, Rewrite, Route
from proxy.wire import frames, messages, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import UNKNOWN_NODE

KEY = ApiKey.API_VERSIONS

_CORRELATION = 4
_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def rewriter(version: int, versions: EffectiveVersions) -> Rewrite:
    """The rewriter of answers to ApiVersions of this version; uncached."""

    def rewrite(frame: memoryview, context: Context) -> bytes:
        unsupported = frame[_CORRELATION : _CORRELATION + 2] == _UNSUPPORTED
        body_version = 0 if unsupported else version
        answer: messages.ApiVersionsResponse
        correlation_id, answer = frames.decode_response(KEY, body_version, frame)
        if answer.error_code == ErrorCode.NONE and context.node_id != UNKNOWN_NODE:
            versions.learn(context.node_id, ranges_of(answer))
        offer_to_client(answer, body_version, versions.offer)
        return frames.response(KEY, body_version, correlation_id, answer)

    return rewrite


def unsupported_version(version: int) -> Route:
    """The route of a version that is not offered: answered here, the body unread."""
    return Route(kind=Kind.LOCAL, key=KEY, version=version, handler=handle, opaque=True)


async def handle(call: Call[memoryview]) -> bytes:
    """Say which versions of ApiVersions there are, in the oldest words (body v0, error 35)."""
    message = messages.ApiVersionsResponse
    known = message.ApiVersion(api_key=KEY, min_version=registry.versions(KEY)[0], max_version=CAPS[KEY])
    answer = message(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[known])
    return bytes(frames.response(KEY, 0, call.correlation_id, answer))


API = ForwardedApi(key=KEY, rewrite=lambda version, parts: rewriter(version, parts.versions), answers_repeat=True)
