"""Forwarded APIs of which a declaration says all: nothing in this room reads their messages.

- Produce (key 0): answers from v10 on may name new leaders (KIP-951); the walk in C lets plain ones pass.
- SaslHandshake (17), SaslAuthenticate (36): the data plane follows the exchange (`forwarding.sasl`).
- ShareAcknowledge (79): answers may name new leaders.
- StreamsGroupHeartbeat (88), StreamsGroupDescribe (89): endpoints of the applications themselves.
"""

from __future__ import annotations

from proxy.forwarding.address_rewriting import ProduceRewriter, drop_node_endpoints, rewriter
from proxy.forwarding.forwarded_api import ForwardedApi, RewritingParts
from proxy.forwarding.routes import Kind, Rewrite
from proxy.wire import endpoints

PRODUCE, SASL_HANDSHAKE, SASL_AUTHENTICATE, SHARE_ACKNOWLEDGE = 0, 17, 36, 79
STREAMS_GROUP_HEARTBEAT, STREAMS_GROUP_DESCRIBE = 88, 89


def _produce(version: int, parts: RewritingParts) -> Rewrite | None:
    if endpoints.locator(PRODUCE, version) is None:
        return None
    return ProduceRewriter(rewriter(PRODUCE, version, parts.book, drop_node_endpoints), version)


APIS = (
    ForwardedApi(key=PRODUCE, kind=Kind.PRODUCE, repair=drop_node_endpoints, rewrite=_produce),
    ForwardedApi(key=SASL_HANDSHAKE, kind=Kind.SASL_HANDSHAKE),
    ForwardedApi(key=SASL_AUTHENTICATE, kind=Kind.SASL_AUTHENTICATE),
    ForwardedApi(key=SHARE_ACKNOWLEDGE, repair=drop_node_endpoints),
    ForwardedApi(
        key=STREAMS_GROUP_HEARTBEAT,
        waived="StreamsGroupHeartbeat: endpoints of the applications themselves, which are not brokers",
    ),
    ForwardedApi(
        key=STREAMS_GROUP_DESCRIBE,
        waived="StreamsGroupDescribe: endpoints of the applications themselves, which are not brokers",
    ),
)
