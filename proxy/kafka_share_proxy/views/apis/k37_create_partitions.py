"""CreatePartitions (key 37): refused for a view (views/README.md rule 49). Versions: all."""

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

KEY = ApiKey.CREATE_PARTITIONS


async def handle(call: Call[messages.CreatePartitionsRequest], _: ViewServices) -> bytes | None:
    request = call.message
    refused = [topic.name for topic in request.topics or () if is_view(topic.name)]
    if not refused:
        return None
    request.topics = [topic for topic in request.topics if not is_view(topic.name)]
    message = messages.CreatePartitionsResponse
    response = await next_response(call) if request.topics else message(results=[])
    code, text = int(ErrorCode.POLICY_VIOLATION), "a view grows when its base does"
    result = message.CreatePartitionsTopicResult
    results = await call.work.map(lambda name: result(name=name, error_code=code, error_message=text), refused)
    response.results = [*(response.results or ()), *results]
    return await replied(call, response)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
