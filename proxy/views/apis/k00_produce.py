"""Produce (key 0): nothing is written to a view.

Versions: all that are offered.

Behaviour
- Partitions of a view are refused with 17, which ends a producer's attempts at once; the rest of such a request is
  asked of the broker, and both answers are one. Without acks (0) there is no answer: the view's records are dropped
  with a line in the log, the rest is sent with acks=1 and its answer is ours.
- Requests are only looked into while some view is known here (`viewing.routes`). What is looked at is the names;
  v13 and later has ids, which are compared with those of the views that are known. A request whose names
  have not all come yet is gathered first.
- What slips through is refused by the broker (10): no record is small enough for the topic of a view.
"""

from __future__ import annotations

from proxy.forwarding.address_rewriting import drop_node_endpoints
from proxy.forwarding.ask_and_reply import ask, ask_upstream, reply, told
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.early_looks import ByTopicId, ByTopicPrefix, ByVersion, EarlyLook
from proxy.forwarding.interfaces import Call
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import PREFIX, is_view
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

KEY = ApiKey.PRODUCE
BY_ID_SINCE = 13
NOTHING = b""
"""The answer to a request that has none."""

_COMMITTED_ONCE = 1
"""acks=1: the least that is answered."""


def may_name_view(catalog: ViewCatalog) -> EarlyLook:
    """Requests that name a view."""
    by_id = ByTopicId(lambda topic_id: catalog.view(topic_id) is not None)
    return ByVersion({0: ByTopicPrefix(PREFIX), BY_ID_SINCE: by_id})


async def handle(call: Call[messages.ProduceRequest], views: ViewServices) -> bytes | None:
    """A request that may name views."""
    request = call.message
    refused = [each for each in request.topic_data or () if is_view(each.name) or views.catalog.view(each.topic_id)]
    if not refused:
        return None
    names = sorted({each.name or f"topic id {bytes(each.topic_id).hex()}" for each in refused})
    views.services.notes("view-produce-refused", client_id=call.client_id or "", topics=", ".join(names))
    request.topic_data = [each for each in request.topic_data if each not in refused]
    if request.acks == 0:
        return await _without_answer(call)
    answer = await ask_upstream(call, request) if request.topic_data else _nothing()
    drop_node_endpoints(answer, views.services.book)
    answer.responses = [*(answer.responses or ()), *map(_refusal, refused)]
    return reply(call, answer)


async def _without_answer(call: Call[messages.ProduceRequest]) -> bytes:
    if call.message.topic_data:
        call.message.acks = _COMMITTED_ONCE
        told(messages.ProduceResponse, call.version, await ask(call.connection, KEY, call.version, call.message))
    return NOTHING


def _nothing() -> messages.ProduceResponse:
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
