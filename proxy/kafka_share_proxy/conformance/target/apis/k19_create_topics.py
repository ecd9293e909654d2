"""CreateTopics (ReplicationControlManager of Kafka 4.3)."""

from __future__ import annotations

from collections import Counter

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.config_resources import ConfigSource
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.topic_configs import KEYS, mistake_in
from kafka_share_proxy.conformance.target.topics import HostedTopic
from kafka_share_proxy.conformance.target.views import find_view
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

DEFAULT = -1

_Topic = messages.CreateTopicsRequest.CreatableTopic
_Result = messages.CreateTopicsResponse.CreatableTopicResult


class _Refused(Exception):
    def __init__(self, error: ErrorCode, text: str) -> None:
        self.error, self.text = error, text


async def handle(call: TargetCall[messages.CreateTopicsRequest]) -> messages.CreateTopicsResponse:
    """Create the topics, each for itself."""
    counts = Counter(topic.name for topic in call.request.topics)
    results = []
    for topic in {each.name: each for each in call.request.topics}.values():
        if counts[topic.name] > 1:
            results.append(_refusal(topic, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            continue
        try:
            results.append(_create(call.cluster, topic, call.request.validate_only))
        except _Refused as refused:
            results.append(_refusal(topic, refused.error, refused.text))
    return messages.CreateTopicsResponse(topics=results)


def _create(cluster: TargetCluster, topic: _Topic, validate_only: bool) -> _Result:
    if is_view(topic.name):
        return _create_view(cluster, topic, validate_only)
    mistake = cluster.topics.name_error(topic.name)
    if cluster.topics.with_name(topic.name) is not None:
        raise _Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if mistake is not None:
        raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, mistake)
    replicas = _assigned(cluster, topic) if topic.assignments else _placed(cluster, topic)
    configs = {each.name: each.value or "" for each in topic.configs}
    mistake = mistake_in(configs)
    if mistake is not None:
        raise _Refused(ErrorCode.INVALID_CONFIG, mistake)
    topic_id = ZERO_UUID if validate_only else cluster.add_topic(topic.name, replicas, configs).topic_id
    return _Result(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=_described(configs),
    )


def _create_view(cluster: TargetCluster, topic: _Topic, validate_only: bool) -> _Result:
    """See views/README.md rule 50."""
    view = find_view(cluster, topic.name)
    if not isinstance(view, HostedTopic):
        raise _Refused(view or ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{topic.name}' is no view of a topic.")
    if view.topic_id != ZERO_UUID:
        raise _Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    count = len(view.partitions)
    if topic.assignments or topic.num_partitions not in (DEFAULT, count):
        raise _Refused(ErrorCode.INVALID_PARTITIONS, f"The view has {count} partitions, placed as those of its base.")
    if not validate_only and cluster.add_view(view) is None:
        raise _Refused(ErrorCode.POLICY_VIOLATION, "The cluster has its maximum number of topics.")
    replication = len(view.partitions[0].replicas)
    return _Result(
        name=topic.name,
        topic_id=view.topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=replication,
        configs=_described(view.configs.stored),
    )


def _placed(cluster: TargetCluster, topic: _Topic) -> list[list[int]]:
    partitions, replication = topic.num_partitions, topic.replication_factor
    settings = cluster.settings
    partitions = settings.default_partitions if partitions == DEFAULT else partitions
    replication = settings.default_replication if replication == DEFAULT else replication
    if partitions < 1:
        raise _Refused(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication < 1:
        raise _Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication > len(cluster.nodes_up):
        text = f"Unable to replicate the partition {replication} time(s): {len(cluster.nodes_up)} broker(s) are up."
        raise _Refused(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    try:
        return cluster.place(partitions, replication)
    except ValueError as error:
        raise _Refused(ErrorCode.INVALID_PARTITIONS, str(error)) from error


def _assigned(cluster: TargetCluster, topic: _Topic) -> list[list[int]]:
    if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
        text = "Partition count and replication factor must be -1 with a manual assignment."
        raise _Refused(ErrorCode.INVALID_REQUEST, text)
    by_index = {each.partition_index: list(each.broker_ids) for each in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        raise _Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based sequence")
    sizes = {len(nodes) for nodes in by_index.values()}
    unknown = {node for nodes in by_index.values() for node in nodes} - set(cluster.node_ids)
    if len(sizes) != 1 or 0 in sizes or unknown or any(len(set(nodes)) < len(nodes) for nodes in by_index.values()):
        raise _Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {by_index} is invalid.")
    return [by_index[index] for index in sorted(by_index)]


def _described(configs: dict[str, str]) -> list[messages.CreateTopicsResponse.CreatableTopicConfigs]:
    return [
        messages.CreateTopicsResponse.CreatableTopicConfigs(
            name=name,
            value=configs.get(name, key.default),
            config_source=ConfigSource.DYNAMIC_TOPIC if name in configs else ConfigSource.DEFAULT,
        )
        for name, key in KEYS.items()
    ]


def _refusal(topic: _Topic, error: ErrorCode, text: str) -> _Result:
    return _Result(name=topic.name, error_code=error, error_message=text)
