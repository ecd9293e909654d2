"""AddPartitionsToTxn (key 24): a transaction cannot write to a view.

Versions: 0 to 3. Later ones are used between brokers (KIP-890).

Behaviour
- Partitions of a view get 17 (INVALID_TOPIC_EXCEPTION) as in Produce, all others of the request 55
  (OPERATION_NOT_ATTEMPTED), and nothing is added. Brokers do the same if one partition cannot be added.
- The request is not forwarded, because a broker returns 3 for a view without a topic, and producers retry after that.
"""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import ByVersion, FromVersion
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.ADD_PARTITIONS_TO_TXN
BATCHED_SINCE = 4
"""First version for several transactions in one request, between brokers."""
_NEVER = FromVersion(1 << 15)
"""Selects no request."""


async def handle(
    call: Call[messages.AddPartitionsToTxnRequest], _: ViewServices
) -> messages.AddPartitionsToTxnResponse | None:
    topics = call.message.v3_and_below_topics or ()
    if not any(is_view(topic.name) for topic in topics):
        return None
    message = messages.AddPartitionsToTxnResponse
    results = []
    for topic in topics:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION if is_view(topic.name) else ErrorCode.OPERATION_NOT_ATTEMPTED
        parts = [
            message.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index in topic.partitions or ()
        ]
        results.append(message.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=parts))
        await call.work.step()
    return message(results_by_topic_v3_and_below=results)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: ByVersion({0: NAMES_VIEW, BATCHED_SINCE: _NEVER}))
