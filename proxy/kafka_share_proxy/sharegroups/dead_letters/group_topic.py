"""Topics of share groups' dead letters, for commands: from the stored settings of the proxies, or of the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.sharegroups.apis.group_configs import GROUP, settings_of
from kafka_share_proxy.sharegroups.model.queue_settings import DEAD_LETTER_COPIES, DEAD_LETTER_TOPIC
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, StateKey, decode_key, encode_key
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

OFFSETS_MAX = 200_000
"""Maximum number of offsets of share state that are read for the topics of all groups."""


class StoredTarget(NamedTuple):
    """Settings of a group about dead letters."""

    topic: str
    copies_records: bool


class TooMuchState(ProxyError):
    """The share state is too large to be read by a command."""


async def topic_of(client: ClusterClient, group: str) -> str:
    """Return the topic in the settings of a group. Empty if it has none. Raises ProxyError."""
    return await _stored_here(client, group) or await _at_brokers(client, group)


async def stored_targets(client: ClusterClient) -> dict[str, StoredTarget]:
    """Return the targets in the state of the proxies, by group. Raises TooMuchState, or another ProxyError."""
    targets: dict[str, StoredTarget] = {}
    for key, value in await _stored_values(client, range(SHARE_STATE.partitions), OFFSETS_MAX):
        kind, group, *_ = decode_key(key)
        settings = settings_of(value) if kind == "settings" else {}
        if topic := settings.get(DEAD_LETTER_TOPIC, ""):
            targets[group] = StoredTarget(topic, settings.get(DEAD_LETTER_COPIES, "").lower() == "true")
    return targets


async def _stored_here(client: ClusterClient, group: str) -> str:
    """Return the topic in the state of the proxies."""
    key = encode_key(StateKey("settings", group))
    values = dict(await _stored_values(client, [state_partition(group)], None))
    return settings_of(values[key]).get(DEAD_LETTER_TOPIC, "") if key in values else ""


async def _stored_values(
    client: ClusterClient, partitions: Iterable[int], offsets_max: int | None
) -> Iterator[tuple[bytes, bytes]]:
    """Return keys and values of share state, none if there is no topic for it."""
    topic = await StateTopic(client, SHARE_STATE).leaders()
    if topic is None:
        return iter(())
    source = replay.ReplaySource(SHARE_STATE.topic, topic.leaders, topic.addresses, client.settings, topic.topic_id)
    numbers = list(partitions)
    ends = await replay.ends(numbers, source)
    if offsets_max is not None:
        size = sum(ends.values()) - sum((await replay.starts(numbers, source)).values())
        if size > offsets_max:
            raise TooMuchState(f"topic {SHARE_STATE.topic} has {size} offsets, and at most {offsets_max} are read")
    replays = {number: SHARE_STATE.replay(ends[number] - 1) for number in numbers}
    await replay.read(replays, source)
    return (entry for each in replays.values() for entry in each.values.items())


async def _at_brokers(client: ClusterClient, group: str) -> str:
    """Return the topic in the brokers' settings of the group. Brokers before 4.4 have no such setting."""
    message = messages.DescribeConfigsRequest
    resource = message.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=[DEAD_LETTER_TOPIC]
    )
    response, _ = await client.send_request(ApiKey.DESCRIBE_CONFIGS, message(resources=[resource]))
    (result,) = response.results
    if result.error_code != ErrorCode.NONE:
        return ""
    return next((each.value or "" for each in result.configs or () if each.name == DEAD_LETTER_TOPIC), "")
