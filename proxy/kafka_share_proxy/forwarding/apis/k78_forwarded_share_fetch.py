"""ShareFetch (key 78) served by the brokers (forwarding/README.md rule 26).

Its response names new leaders after the records. While the audit reads it, it is collected whole.
"""

from __future__ import annotations

from struct import Struct

from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi, RewritingParts
from kafka_share_proxy.forwarding.dispatch.routes import Amend, Rewrite
from kafka_share_proxy.forwarding.rewriting.address_rewriting import drop_node_endpoints, rewriter
from kafka_share_proxy.forwarding.rewriting.share_fetch_stream import ShareFetchRewriter
from kafka_share_proxy.wire.codec import prefixes
from kafka_share_proxy.wire.codec.prefixes import PlaceOf
from kafka_share_proxy.wire.definitions.api_key import ApiKey

KEY = ApiKey.SHARE_FETCH

ROOM = 0.75
"""Maximum MaxBytes as a fraction of the collect limit."""

_MAX_BYTES = Struct(">i")


def limit_max_bytes(version: int, collected_bytes: int) -> Amend:
    """Raises RemoteProtocolError if a request is too short."""
    highest = int(collected_bytes * ROOM)
    offset_of = prefixes.of_request(KEY, version, PlaceOf("MaxBytes"))

    def amend(frame: memoryview) -> None:
        at = offset_of(frame, len(frame))
        if _MAX_BYTES.unpack_from(frame, at)[0] > highest:
            _MAX_BYTES.pack_into(frame, at, highest)

    return amend


def _rewrite(version: int, parts: RewritingParts) -> Rewrite:
    return ShareFetchRewriter(rewriter(KEY, version, parts.book, drop_node_endpoints), version, parts.book)


API = ForwardedApi(
    key=KEY,
    repair=drop_node_endpoints,
    rewrite=_rewrite,
    amend=lambda version, parts: limit_max_bytes(version, parts.limits.collected_bytes),
)
