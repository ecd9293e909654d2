"""Produce (key 0): nothing is written to a view (views/README.md rules 9 and 48).

The rest of a request with partitions of a view is sent to the broker, with acks=0 as acks=1, and the two responses are
merged. Requests are only checked while any view is known here (`ViewFeature.build`), by topic name, or from v13 on by
id.
"""

from __future__ import annotations

from typing import TypeAlias

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import ByTopicId, ByTopicPrefix, ByVersion, EarlyMatch
from kafka_share_proxy.forwarding.rewriting.address_rewriting import drop_node_endpoints
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import decode_response, replied, send_request, send_upstream
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.model.names import PREFIX, is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

_Topic: TypeAlias = "messages.ProduceRequest.TopicProduceData"

KEY = ApiKey.PRODUCE
BY_ID_SINCE = 13
NO_RESPONSE = b""
"""Result of a handler for acks=0."""

_ACKS_OF_LEADER = 1
"""acks=1, the lowest value with a response."""


def may_name_view(catalog: ViewCatalog) -> EarlyMatch:
    by_id = ByTopicId(lambda topic_id: catalog.view(topic_id) is not None)
    return ByVersion({0: ByTopicPrefix(PREFIX), BY_ID_SINCE: by_id})


async def handle(call: Call[messages.ProduceRequest], views: ViewServices) -> bytes | None:
    request = call.message
    refused: list[_Topic] = []
    remaining_topics: list[_Topic] = []
    for each in request.topic_data or ():
        if is_view(each.name) or views.catalog.view(each.topic_id):
            refused.append(each)
        else:
            remaining_topics.append(each)
        await call.work.step()
    if not refused:
        return None
    names = sorted({each.name or f"topic id {bytes(each.topic_id).hex()}" for each in refused})
    views.services.notes("view-produce-refused", client_id=call.client_id or "", topics=", ".join(names))
    request.topic_data = remaining_topics
    if request.acks == 0:
        return await _without_response(call)
    response = await send_upstream(call, request) if request.topic_data else _empty_response()
    drop_node_endpoints(response, views.services.book)
    response.responses = [*(response.responses or ()), *await call.work.map(_refusal, refused)]
    return await replied(call, response)


async def _without_response(call: Call[messages.ProduceRequest]) -> bytes:
    """Send the rest of a request with acks=0 as one with acks=1, and drop the response."""
    if call.message.topic_data:
        call.message.acks = _ACKS_OF_LEADER
        decode_response(
            messages.ProduceResponse, call.version, await send_request(call.connection, KEY, call.version, call.message)
        )
    return NO_RESPONSE


def _empty_response() -> messages.ProduceResponse:
    return messages.ProduceResponse(responses=[], node_endpoints=[])


def _refusal(topic: messages.ProduceRequest.TopicProduceData) -> messages.ProduceResponse.TopicProduceResponse:
    message = messages.ProduceResponse
    parts = [
        message.PartitionProduceResponse(
            index=each.index,
            error_code=int(ErrorCode.INVALID_TOPIC_EXCEPTION),
            base_offset=-1,
            record_errors=[],
            error_message="nothing can be written to a view",
        )
        for each in topic.partition_data or ()
    ]
    return message.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: may_name_view(views.catalog))
