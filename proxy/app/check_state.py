"""What `check` says about keeping a state in the cluster: its topic, and the rights of the proxy's own identity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxy.brokers.own_client import OwnClient
from proxy.brokers.questions import about_topics
from proxy.durable.described_state import DescribedState
from proxy.durable.ownership_rules import GROUP
from proxy.durable.state_topic import StateTopic
from proxy.sharegroups.state_records import SHARE_STATE
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, ProxyError

READ, WRITE, CREATE, DESCRIBE = 3, 4, 5, 8
"""Operation codes (org.apache.kafka.common.acl.AclOperation); also bits of an authorized-operations field."""
_NAMES = {READ: "READ", WRITE: "WRITE", CREATE: "CREATE", DESCRIBE: "DESCRIBE"}
NO_BITS = -(1 << 31)
"""What stands for "not told" in an authorized-operations field."""


@dataclass(frozen=True, slots=True)
class StateRights:
    """What the identity may do to the topics of state."""

    partitions: int = 0
    """Of the topic; 0 where it does not exist yet."""
    missing: tuple[str, ...] = ()
    """Operations on the topic that the identity lacks."""
    group_refused: bool = False
    transactions_trouble: str = ""
    state: DescribedState[Any] = SHARE_STATE


async def ask(own: OwnClient, state: DescribedState[Any] = SHARE_STATE) -> StateRights:
    """Ask with the proxy's own identity; changes nothing. Raises ProxyError when no server answers."""
    answer, _ = await own.ask(ApiKey.METADATA, about_topics([state.topic], operations=True))
    (topic,) = answer.topics
    exists = topic.error_code == ErrorCode.NONE
    wanted = [READ, WRITE, DESCRIBE] if exists else [READ, WRITE, DESCRIBE, CREATE]
    bits = 0 if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else topic.topic_authorized_operations
    missing = () if bits == NO_BITS else tuple(_NAMES[code] for code in wanted if not bits >> code & 1)
    probe = messages.HeartbeatRequest(group_id=GROUP, generation_id=0, member_id="check")
    heard, _ = await own.ask(ApiKey.HEARTBEAT, probe)
    return StateRights(
        partitions=len(topic.partitions or ()) if exists else 0,
        missing=missing,
        group_refused=heard.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED,
        transactions_trouble=await _transactions_trouble(own, state),
        state=state,
    )


async def _transactions_trouble(own: OwnClient, state: DescribedState[Any]) -> str:
    """Whether the ids may be looked up; whether they may be used shows only when they are."""
    try:
        await StateTopic(own, state).coordinators([state.transactional_id(0)])
    except ProxyError as error:
        return str(error)
    return ""


def judge(found: StateRights | None, state: DescribedState[Any] = SHARE_STATE) -> Iterator[str]:
    """A sentence for each thing that stands in the way; `found` None: there is no identity to ask with."""
    if found is None:
        yield (
            f"{state.serves} will be off: their state is kept in a topic, for which the proxy needs an identity of its "
            f"own (upstream.sasl.*); {state.setting}: memory serves them without, until the proxy ends"
        )
        return
    topic, partitions = found.state.topic, found.state.partitions
    if found.partitions not in (0, partitions):
        yield f"topic {topic} has {found.partitions} partitions and must have {partitions}"
    if found.missing:
        yield f"the proxy's own identity lacks {', '.join(found.missing)} on topic {topic}"
    if found.group_refused:
        yield f"the proxy's own identity lacks READ on group {GROUP}"
    if found.transactions_trouble:
        yield found.transactions_trouble
