"""CreateTopics (key 19): a view's topic is made with as many partitions as it needs, whoever makes it.

Versions: all.

Behaviour
- A name that no view can have: 17. No such base, or none the client may see: the broker's answer about the base.
- Partitions left to the brokers (-1) become those of the base times the slots, and so does the replication factor of
  the base; any other number of partitions, or partitions placed by hand: 37.
- The topic gets the settings of a view's (nothing can be written into it) unless the client gives its own. What is left
  is asked of the broker as the client's principal, together with the topics that are no views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from proxy.brokers.questions import TopicEntry
from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.chain import answer_behind
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.views import broker_requests, state_records
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.model.base_comparison import Step, cut_of, judge
from proxy.views.model.catalog import Binding
from proxy.views.model.names import ViewName, is_view
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import ZERO_UUID

_Wanted: TypeAlias = "messages.CreateTopicsRequest.CreatableTopic"

KEY = ApiKey.CREATE_TOPICS


async def handle(call: Call[messages.CreateTopicsRequest], views: ViewServices) -> bytes | None:
    """A request that may name views."""
    wanted = [topic for topic in call.message.topics or () if is_view(topic.name)]
    if not wanted:
        return None
    names, bad = views.keeper.read(topic.name for topic in wanted)
    refused = {topic: (code, "no view can be called so") for topic, code in bad.items()}
    bases = await _bases(call, views, names)
    refused |= _fit(views, names, {topic.name: topic for topic in wanted}, bases)
    request = call.message
    request.topics = [topic for topic in request.topics if topic.name not in refused]
    message = messages.CreateTopicsResponse
    answer = await answer_behind(call) if request.topics else message(topics=[])
    _bind(views, {name.topic: bases.get(name.base) for name in names}, answer.topics or (), request.validate_only)
    answer.topics = [
        *(answer.topics or ()),
        *(
            message.CreatableTopicResult(name=topic, error_code=int(code), error_message=text)
            for topic, (code, text) in refused.items()
        ),
    ]
    return reply(call, answer)


async def _bases(
    call: Call[messages.CreateTopicsRequest], views: ViewServices, names: list[ViewName]
) -> dict[str, TopicEntry]:
    """Metadata of the bases, and everything stored has been read."""
    if not names:
        return {}
    await views.keeper.know(names)
    return await broker_requests.ask_topics(call.connection, [name.base for name in names])


def _bind(
    views: ViewServices,
    bases: Mapping[str, TopicEntry | None],
    made: Iterable[messages.CreateTopicsResponse.CreatableTopicResult],
    validate_only: bool,
) -> None:
    """What was made belongs to the base as it is now (the topic's id is told from v7 on)."""
    for topic in made:
        base, topic_id = bases.get(topic.name), bytes(topic.topic_id)
        if base is None or topic.error_code != ErrorCode.NONE or validate_only or topic_id == ZERO_UUID:
            continue
        binding = Binding(topic_id, bytes(base.topic_id))
        views.catalog.bind(topic.name, binding)
        views.keeper.store.store(state_records.binding_key(topic.name), state_records.binding_value(binding))


def _fit(
    views: ViewServices, names: list[ViewName], wanted: Mapping[str, _Wanted], entries: Mapping[str, TopicEntry]
) -> dict[str, tuple[ErrorCode, str]]:
    """Complete what is asked for, in place; what cannot be made so."""
    refused = {}
    for name in names:
        plan = None if name.plan is None else views.catalog.plan(name.plan)
        if name.plan is not None and plan is None:
            refused[name.topic] = (ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no plan {name.plan!r}")
            continue
        base = broker_requests.seen(entries.get(name.base))
        missing = broker_requests.seen(None)
        standing = judge(cut_of(name, plan).slots, missing, base, None, views.options.partitions_max)
        if standing.step is not Step.CREATE:
            refused[name.topic] = (standing.code, standing.reason or f"its base {name.base} cannot be looked at")
        elif wanted[name.topic].assignments or wanted[name.topic].num_partitions not in (-1, standing.partitions):
            refused[name.topic] = (ErrorCode.INVALID_PARTITIONS, f"this view has {standing.partitions} partitions")
        else:
            _complete(wanted[name.topic], standing.partitions, entries[name.base])
    return refused


def _complete(topic: _Wanted, partitions: int, base: TopicEntry) -> None:
    topic.num_partitions = partitions
    if topic.replication_factor == broker_requests.DEFAULT_REPLICATION:
        replicas = (len(each.replica_nodes) for each in base.partitions)
        topic.replication_factor = min(replicas, default=broker_requests.DEFAULT_REPLICATION)
    given = {config.name for config in topic.configs or ()}
    entry = messages.CreateTopicsRequest.CreatableTopicConfig
    ours = [entry(name=name, value=value) for name, value in broker_requests.CONFIGS.items() if name not in given]
    topic.configs = [*(topic.configs or ()), *ours]


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
