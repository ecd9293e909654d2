"""OffsetCommit (key 8) and TxnOffsetCommit (key 28): a view that is committed to is created, then the request is
forwarded.

A commit by topic id (OffsetCommit v10 and later, KIP-848) names a topic that exists.
"""

from __future__ import annotations

from typing import TypeAlias

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup, EarlyMatch
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.views.apis.base_queries import make_ready
from kafka_share_proxy.views.apis.named_views import NamesUnknownView
from kafka_share_proxy.views.model.names import PREFIX_BYTES, is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

Commit: TypeAlias = "messages.OffsetCommitRequest | messages.TxnOffsetCommitRequest"


async def handle(call: Call[Commit], views: ViewServices) -> None:
    topics: dict[str, list[int]] = {}
    for topic in call.message.topics or ():
        if topic.name is not None and is_view(topic.name):
            topics[topic.name] = [each.partition_index for each in topic.partitions or ()]
        await call.work.step()
    if topics:
        await make_ready(call.connection, views, topics, call.work)


def may_name_unknown_view(views: ViewServices) -> EarlyMatch:
    return ByKnownGroup(NamesUnknownView(views.catalog), groups=(), words=(PREFIX_BYTES,))


APIS = tuple(
    DeclaredApi(key=key, handle=handle, wants=may_name_unknown_view)
    for key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)
)
