"""DeleteRecords (key 21): a view has no records of its own; those of its base are deleted there.

Versions: all. Partitions of a view get 44 (POLICY_VIOLATION); the rest of the request is asked of the broker.
"""

from __future__ import annotations

from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.chain import answer_behind
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.model.names import is_view
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

KEY = ApiKey.DELETE_RECORDS


async def handle(call: Call[messages.DeleteRecordsRequest], _: ViewServices) -> bytes | None:
    """A request that may name views."""
    request = call.message
    refused = [topic for topic in request.topics or () if is_view(topic.name)]
    if not refused:
        return None
    request.topics = [topic for topic in request.topics if not is_view(topic.name)]
    answer = await answer_behind(call) if request.topics else messages.DeleteRecordsResponse(topics=[])
    answer.topics = [*(answer.topics or ()), *(_refusal(topic) for topic in refused)]
    return reply(call, answer)


def _refusal(
    topic: messages.DeleteRecordsRequest.DeleteRecordsTopic,
) -> messages.DeleteRecordsResponse.DeleteRecordsTopicResult:
    message = messages.DeleteRecordsResponse
    parts = [
        message.DeleteRecordsPartitionResult(
            partition_index=each.partition_index, low_watermark=-1, error_code=int(ErrorCode.POLICY_VIOLATION)
        )
        for each in topic.partitions or ()
    ]
    return message.DeleteRecordsTopicResult(name=topic.name, partitions=parts)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
