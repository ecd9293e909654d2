"""DescribeTopicPartitions v0 (key 75): sent by admin clients instead of Metadata (KIP-966).

Rules: views/README.md 2, 11, 13, 15 and 52. A page without views may be empty and have a cursor to the next one. A view
that has a topic is made ready first. The broker then describes its topic, so that limit and cursor count its own
partitions. Views without a topic and refused names are on the page where they sort by name.
"""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import AboutAllTopics, AnyOf
from kafka_share_proxy.forwarding.rewriting.hidden_topics import is_hidden
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied, send_upstream
from kafka_share_proxy.views.apis.metadata_entries import describe_as_base, description, refused_description
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.creation import Missing
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS

VIEWS_OR_ALL_TOPICS = AnyOf((NAMES_VIEW, AboutAllTopics()))


async def handle(call: Call[messages.DescribeTopicPartitionsRequest], views: ViewServices) -> bytes | None:
    if not call.message.topics:
        response = await send_upstream(call, call.message)
        response.topics = [topic for topic in response.topics or () if not is_hidden(topic.name)]
        return await replied(call, response)
    return await replied(call, await _describe(call, views))


async def _describe(
    call: Call[messages.DescribeTopicPartitionsRequest], views: ViewServices
) -> messages.DescribeTopicPartitionsResponse:
    request, work = call.message, call.work
    topics = await work.select(lambda topic: is_view(topic.name), request.topics)
    names, errors = await views.creation.parse_names(await work.map(lambda topic: topic.name, topics), work)
    outcomes = await views.creation.prepare(call.connection, names, missing=Missing.SHOW, operations=True, work=work)
    refused = await work.map(lambda topic: refused_description(topic, errors[topic]), errors)
    local = dict(zip(errors, refused, strict=True))
    for topic, outcome in outcomes.items():
        await work.step()
        if outcome.code != ErrorCode.NONE:
            local[topic] = refused_description(topic, outcome.code, outcome)
        elif outcome.is_without_topic:
            local[topic] = await description(work, outcome)
    request.topics = await work.select(lambda topic: topic.name not in local, request.topics)
    response = await send_upstream(call, request) if request.topics else _empty_response()
    for entry in response.topics:
        if entry.name in outcomes and entry.error_code == ErrorCode.NONE:
            describe_as_base(entry, outcomes[entry.name])
        await work.step()
    begin = request.cursor.topic_name if request.cursor is not None else ""
    end = response.next_cursor.topic_name if response.next_cursor is not None else None
    local_topics = await work.select(lambda topic: topic >= begin and (end is None or topic < end), sorted(local))
    response.topics = [*await work.map(lambda topic: local[topic], local_topics), *response.topics]
    return response


def _empty_response() -> messages.DescribeTopicPartitionsResponse:
    return messages.DescribeTopicPartitionsResponse(topics=[], next_cursor=None)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: VIEWS_OR_ALL_TOPICS)
