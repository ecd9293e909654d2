"""DeleteRecords (key 21): refused for a view (views/README.md rule 49). Versions: all."""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.chain import next_response
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.DELETE_RECORDS


async def handle(call: Call[messages.DeleteRecordsRequest], _: ViewServices) -> bytes | None:
    request = call.message
    refused = [topic for topic in request.topics or () if is_view(topic.name)]
    if not refused:
        return None
    request.topics = [topic for topic in request.topics if not is_view(topic.name)]
    response = await next_response(call) if request.topics else messages.DeleteRecordsResponse(topics=[])
    response.topics = [*(response.topics or ()), *await call.work.map(_refusal, refused)]
    return await replied(call, response)


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
