"""DescribeTopicPartitions (key 75): what administrators' clients ask instead of Metadata (KIP-966).

Versions: 0.

Behaviour
- An answer about all topics leaves out the proxy's own and views, as Metadata does; a page may be empty then, and its
  cursor goes on.
- A view that is named is made ready first (but not made: this request creates no topics at brokers either); the broker
  then answers about its topic, so that limit and cursor count its own partitions, and what it says of each partition
  becomes what Metadata says of the base's.
- Names that no view can have: 17; no such view or base: 3 without partitions; what the broker refuses is passed on.
  They stand on the page of a request whose cursor is not behind them.
"""

from __future__ import annotations

from proxy.forwarding.ask_and_reply import ask_upstream, reply
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.early_looks import AboutAllTopics, AnyOf
from proxy.forwarding.hidden_topics import is_hidden
from proxy.forwarding.interfaces import Call
from proxy.views.apis.metadata_entries import describe_as_base, refused_description
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.model.names import is_view
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS

WANTED = AnyOf((NAMES_VIEW, AboutAllTopics()))
"""Requests that name a view, or no topic at all."""


async def handle(call: Call[messages.DescribeTopicPartitionsRequest], views: ViewServices) -> bytes | None:
    """All topics, or some of which one may be a view."""
    if not call.message.topics:
        answer = await ask_upstream(call, call.message)
        answer.topics = [topic for topic in answer.topics or () if not is_hidden(topic.name)]
        return reply(call, answer)
    return reply(call, await _describe(call, views))


async def _describe(
    call: Call[messages.DescribeTopicPartitionsRequest], views: ViewServices
) -> messages.DescribeTopicPartitionsResponse:
    request = call.message
    names, bad = views.keeper.read(topic.name for topic in request.topics if is_view(topic.name))
    sights = await views.keeper.look(call.connection, names, create=False)
    refused = {topic: refused_description(topic, code) for topic, code in bad.items()}
    for topic, sight in sights.items():
        if sight.code != ErrorCode.NONE:
            refused[topic] = refused_description(topic, sight.code, sight)
    request.topics = [topic for topic in request.topics if topic.name not in refused]
    answer = await ask_upstream(call, request) if request.topics else _nothing()
    for entry in answer.topics:
        if entry.name in sights and entry.error_code == ErrorCode.NONE:
            describe_as_base(entry, sights[entry.name])
    begin = request.cursor.topic_name if request.cursor is not None else ""
    answer.topics = [*(entry for topic, entry in sorted(refused.items()) if topic >= begin), *answer.topics]
    return answer


def _nothing() -> messages.DescribeTopicPartitionsResponse:
    return messages.DescribeTopicPartitionsResponse(topics=[], next_cursor=None)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: WANTED)
