"""Forwarded APIs that need only a declaration.

- Produce (key 0): responses from v10 on may name new leaders (KIP-951). The walk in C forwards those that name none.
"""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi, RewritingParts
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Rewrite
from kafka_share_proxy.forwarding.rewriting.address_rewriting import ProduceRewriter, drop_node_endpoints, rewriter
from kafka_share_proxy.wire.definitions import endpoints
from kafka_share_proxy.wire.definitions.api_key import ApiKey


def _produce(version: int, parts: RewritingParts) -> Rewrite | None:
    if endpoints.locator(ApiKey.PRODUCE, version) is None:
        return None
    return ProduceRewriter(rewriter(ApiKey.PRODUCE, version, parts.book, drop_node_endpoints), version)


APIS = (
    ForwardedApi(key=ApiKey.PRODUCE, kind=Kind.PRODUCE, repair=drop_node_endpoints, rewrite=_produce),
    ForwardedApi(key=ApiKey.SASL_HANDSHAKE, kind=Kind.SASL_HANDSHAKE),
    ForwardedApi(key=ApiKey.SASL_AUTHENTICATE, kind=Kind.SASL_AUTHENTICATE),
    ForwardedApi(key=ApiKey.SHARE_ACKNOWLEDGE, repair=drop_node_endpoints),
    ForwardedApi(
        key=ApiKey.STREAMS_GROUP_HEARTBEAT,
        waived="StreamsGroupHeartbeat: endpoints of the applications themselves, which are not brokers",
    ),
    ForwardedApi(
        key=ApiKey.STREAMS_GROUP_DESCRIBE,
        waived="StreamsGroupDescribe: endpoints of the applications themselves, which are not brokers",
    ),
)
