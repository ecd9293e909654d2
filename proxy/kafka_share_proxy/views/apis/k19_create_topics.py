"""CreateTopics (key 19): a view's topic is created with the number of partitions it needs (views/README.md rule 50).

- An invalid view name: 17. No such base, or none that the client may see: the broker's error for the base.
- A partition count left to the brokers (-1) becomes that of the base times the slots, and a replication factor left to
  them becomes that of the base. Any other number of partitions, or a manual assignment: 37.
- The topic gets the settings of view topics (nothing can be written to it) unless the client sends its own. The rest of
  the request is sent to the broker as the client's principal, together with the topics that are not views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.forwarding.dispatch.chain import next_response
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied
from kafka_share_proxy.views import broker_requests, state_records
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.model.base_comparison import Step, cut_of, needed_step
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.views.model.names import ViewName, is_view, parse
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

_RequestedTopic: TypeAlias = "messages.CreateTopicsRequest.CreatableTopic"

KEY = ApiKey.CREATE_TOPICS


async def handle(call: Call[messages.CreateTopicsRequest], views: ViewServices) -> bytes | None:
    request, work = call.message, call.work
    requested: dict[str, _RequestedTopic] = {}
    for topic in request.topics or ():
        if is_view(topic.name):
            requested[topic.name] = topic
        await work.step()
    if not requested:
        return None
    names, errors = await views.creation.parse_names(requested, work)
    refused = {topic: (code, "no view can be called so") for topic, code in errors.items()}
    bases = await _bases(call, views, names)
    refused |= await _complete_topics(call, views, names, requested, bases)
    request.topics = await work.select(lambda topic: topic.name not in refused, request.topics)
    message = messages.CreateTopicsResponse
    response = await next_response(call) if request.topics else message(topics=[])
    if not request.validate_only:
        await _bind(call, views, bases, response.topics or ())

    def refusal(topic: str) -> messages.CreateTopicsResponse.CreatableTopicResult:
        code, text = refused[topic]
        return message.CreatableTopicResult(name=topic, error_code=int(code), error_message=text)

    response.topics = [*(response.topics or ()), *await work.map(refusal, refused)]
    return await replied(call, response)


async def _bases(
    call: Call[messages.CreateTopicsRequest], views: ViewServices, names: list[ViewName]
) -> dict[str, TopicEntry]:
    """Return the Metadata of the bases, requested after the stored plans were read."""
    if not names:
        return {}
    await views.creation.wait_for_stored_state(
        await call.work.select(lambda name: views.catalog.by_name(name.topic) is None, names)
    )
    bases = await call.work.map(lambda name: name.base, names)
    return await broker_requests.request_topics(call.connection, bases, work=call.work)


async def _bind(
    call: Call[messages.CreateTopicsRequest],
    views: ViewServices,
    bases: Mapping[str, TopicEntry],
    created: Iterable[messages.CreateTopicsResponse.CreatableTopicResult],
) -> None:
    """Bind the created views (topic ids from v7 on)."""
    for topic in created:
        await call.work.step()
        topic_id = bytes(topic.topic_id)
        if topic.error_code != ErrorCode.NONE or topic_id == ZERO_UUID or not is_view(topic.name):
            continue
        name = parse(topic.name)
        base = None if name is None else bases.get(name.base)
        if base is None:
            continue
        binding = Binding(topic_id, bytes(base.topic_id))
        views.catalog.bind(topic.name, binding)
        views.creation.store.store(state_records.binding_key(topic.name), state_records.binding_value(binding))


async def _complete_topics(
    call: Call[messages.CreateTopicsRequest],
    views: ViewServices,
    names: list[ViewName],
    requested: Mapping[str, _RequestedTopic],
    entries: Mapping[str, TopicEntry],
) -> dict[str, tuple[ErrorCode, str]]:
    """Complete the requested topics. Return the error and its text for each that cannot be created."""
    refused = {}
    for name in names:
        await call.work.step()
        plan = None if name.plan is None else views.catalog.plan(name.plan)
        if name.plan is not None and plan is None:
            refused[name.topic] = (ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no plan {name.plan!r}")
            continue
        base = broker_requests.state_of(entries.get(name.base))
        missing = broker_requests.state_of(None)
        needed = needed_step(cut_of(name, plan).slots, missing, base, None, views.options.partitions_max)
        if needed.step is not Step.CREATE:
            refused[name.topic] = (needed.code, needed.reason or f"its base {name.base} cannot be described")
        elif requested[name.topic].assignments or requested[name.topic].num_partitions not in (-1, needed.partitions):
            refused[name.topic] = (ErrorCode.INVALID_PARTITIONS, f"this view has {needed.partitions} partitions")
        else:
            _complete_topic(requested[name.topic], needed.partitions, entries[name.base])
    return refused


def _complete_topic(topic: _RequestedTopic, partitions: int, base: TopicEntry) -> None:
    topic.num_partitions = partitions
    if topic.replication_factor == broker_requests.DEFAULT_REPLICATION:
        replicas = (len(each.replica_nodes) for each in base.partitions)
        topic.replication_factor = min(replicas, default=broker_requests.DEFAULT_REPLICATION)
    client_settings = {config.name for config in topic.configs or ()}
    entry = messages.CreateTopicsRequest.CreatableTopicConfig
    ours = [
        entry(name=name, value=value) for name, value in broker_requests.CONFIGS.items() if name not in client_settings
    ]
    topic.configs = [*(topic.configs or ()), *ours]


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
