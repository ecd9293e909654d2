"""Topic of a share group's dead letters, for commands: from the stored settings of the proxies, or of the brokers."""

from __future__ import annotations

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.partition_log import Replay
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.sharegroups.apis.group_configs import GROUP, settings_of
from kafka_share_proxy.sharegroups.model.queue_settings import DEAD_LETTER_TOPIC
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, StateKey, encode_key
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode


async def topic_of(client: ClusterClient, group: str) -> str:
    """Return the topic in the settings of a group. Empty if it has none. Raises ProxyError."""
    return await _stored_here(client, group) or await _at_brokers(client, group)


async def _stored_here(client: ClusterClient, group: str) -> str:
    """Return the topic in the state of the proxies."""
    topic = await StateTopic(client, SHARE_STATE).leaders()
    if topic is None:
        return ""
    number = state_partition(group)
    source = replay.ReplaySource(SHARE_STATE.topic, topic.leaders, topic.addresses, client.settings, topic.topic_id)
    end = (await replay.ends([number], source))[number]
    read = Replay(SHARE_STATE.reign_of, end - 1)
    await replay.read({number: read}, source)
    value = read.values.get(encode_key(StateKey("settings", group)))
    return "" if value is None else settings_of(value).get(DEAD_LETTER_TOPIC, "")


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
