"""Rights of the proxy's own identity on the topic of a state, for `check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.internal_topics import InternalTopic, TopicRefused
from kafka_share_proxy.brokers.operations import missing_on
from kafka_share_proxy.brokers.queries import TopicEntry, about_topics
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.ownership_rules import GROUP
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.wire.acl_operations import AclOperation
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost

_NEEDED = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)


@dataclass(frozen=True, slots=True)
class StateRights:
    """Rights of the identity on the topic of a state, and findings about the topic."""

    partitions: int = 0
    """Number of partitions of the topic; 0 if it does not exist yet."""
    missing: tuple[str, ...] = ()
    """Operations on the topic that the identity lacks."""
    group_refused: bool = False
    """True if the identity lacks READ on the group of proxies."""
    transactions_trouble: str = ""
    """Error of the lookup of a transactional id. Empty if it succeeded."""
    unsafe: str = ""
    """Reason why brokers delete records of the topic, with the command that corrects it."""
    risks: tuple[str, ...] = ()
    """Settings of the topic that put the stored records or the service at risk."""


async def query_rights(own: ClusterClient, state: DescribedState[Any]) -> StateRights:
    """Query the rights of the proxy's own identity, without changes. Raises ProxyError if no server responds."""
    response, _ = await own.send_request(ApiKey.METADATA, about_topics([state.topic], operations=True))
    (topic,) = response.topics
    exists = topic.error_code == ErrorCode.NONE
    probe = messages.HeartbeatRequest(group_id=GROUP, generation_id=0, member_id="check")
    heartbeat, _ = await own.send_request(ApiKey.HEARTBEAT, probe)
    unsafe, risks = await dangers_of(own, state.topic, state.partitions) if exists else ("", ())
    return StateRights(
        unsafe=unsafe,
        risks=risks,
        partitions=len(topic.partitions or ()) if exists else 0,
        missing=missing_on_internal(topic),
        group_refused=heartbeat.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED,
        transactions_trouble=await _transactions_trouble(own, state),
    )


def missing_on_internal(topic: TopicEntry) -> tuple[str, ...]:
    """Return the operations that the identity lacks on a topic of the proxy's own, and CREATE if it is missing."""
    exists = topic.error_code == ErrorCode.NONE
    return missing_on(topic, _NEEDED if exists else (*_NEEDED, AclOperation.CREATE))


async def dangers_of(own: ClusterClient, name: str, partitions: int) -> tuple[str, tuple[str, ...]]:
    """Return `unsafe` and `risks` of an internal topic; none if its settings are not readable."""
    topic = InternalTopic(own, name, partitions)
    try:
        view = await topic.leaders()
        if view is not None:
            settings = await topic.settings(view)
            return settings.unsafe, tuple(settings.risks().values())
    except (TopicRefused, UpstreamLost):
        pass  # reported among the rights and partitions
    return "", ()


async def _transactions_trouble(own: ClusterClient, state: DescribedState[Any]) -> str:
    """Return the error of looking up the transactional ids. Whether they may be used shows only at their first use."""
    try:
        await StateTopic(own, state).coordinators([state.transactional_id(0)])
    except ProxyError as error:
        return str(error)
    return ""


def obstacles(rights: StateRights | None, state: DescribedState[Any]) -> Iterator[str]:
    """Yield a sentence for each obstacle. `rights` is None if there is no identity to query with."""
    if rights is None:
        yield (
            f"{state.serves} will be off: their state is kept in a topic, for which the proxy needs a working "
            f"identity of its own (upstream.sasl.*); {state.setting}: memory serves them without, until the proxy ends"
        )
        return
    topic, partitions = state.topic, state.partitions
    if rights.partitions not in (0, partitions):
        yield f"topic {topic} has {rights.partitions} partitions and must have {partitions}"
    if rights.missing:
        yield f"the proxy's own identity lacks {', '.join(rights.missing)} on topic {topic}"
    if rights.group_refused:
        yield f"the proxy's own identity lacks READ on group {GROUP}"
    if rights.transactions_trouble:
        yield rights.transactions_trouble
    if rights.unsafe:
        yield rights.unsafe
