"""Cases of Metadata, DescribeCluster, topics and their settings."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.expectations import equal, one_of, true
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

SCHEMA = "MetadataResponse.json"
CREATION = "CreateTopicsResponse.json; ReplicationControlManager.createTopic"
INVALID_NAMES = {"space": "a b", "empty": "", "dots": "..", "slash": "a/b", "long": "a" * 250}
UNKNOWN_ID = b"\x05" * 16


@case_for_each(
    {str(version): (version,) for version in range(1, 14)}, "metadata.topic.v{name}", SCHEMA, needs=("Metadata:{0}",)
)
async def shown(run: CaseRun, version: int) -> None:
    """Metadata v{0} shows a topic with its partitions, leaders, replicas and in-sync replicas."""
    topic = await run.topic(3)
    response = await run.request("Metadata", version=version, topics=[{"name": topic.name}])
    (entry,) = response.topics
    equal("error and name", (entry.error_code, entry.name), (0, topic.name))
    equal("IsInternal", entry.is_internal, False)
    actual = {each.partition_index: each.leader_id for each in entry.partitions}
    equal("leaders", actual, dict(topic.leaders))
    nodes = {each.node_id for each in response.brokers}
    for each in entry.partitions:
        true("leader in ISR", each.leader_id in each.isr_nodes, "yes", list(each.isr_nodes))
        true("replicas among the brokers", set(each.replica_nodes) <= nodes, "yes", list(each.replica_nodes))
        equal("error of the partition", each.error_code, ErrorCode.NONE)
        if version >= 7:
            equal("LeaderEpoch", each.leader_epoch, 0)
    if version >= 10:
        true("TopicId", bytes(entry.topic_id) != ZERO_UUID, "not zero")
        equal("TopicId", bytes(entry.topic_id), topic.topic_id)


@case("metadata.topic.by-id", "KIP-516", needs=("Metadata:12",))
async def by_id(run: CaseRun) -> None:
    """Metadata v12 finds a topic by its id."""
    topic = await run.topic()
    requested = {"name": None, "topic_id": topic.topic_id}
    response = await run.request("Metadata", version=12, topics=[requested], allow_auto_topic_creation=False)
    (entry,) = response.topics
    equal("error, name and id", (entry.error_code, entry.name, bytes(entry.topic_id)), (0, topic.name, topic.topic_id))


@case("metadata.topic.unknown-id", "KIP-516", needs=("Metadata:12",))
async def unknown_id(run: CaseRun) -> None:
    """An unknown topic id gets UNKNOWN_TOPIC_ID."""
    requested = {"name": None, "topic_id": UNKNOWN_ID}
    response = await run.request("Metadata", version=12, topics=[requested], allow_auto_topic_creation=False)
    equal("ErrorCode", response.topics[0].error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@case("metadata.topic.unknown", "MetadataRequest.json (AllowAutoTopicCreation)")
async def unknown(run: CaseRun) -> None:
    """An unknown topic gets UNKNOWN_TOPIC_OR_PARTITION, has no partitions, and is not created."""
    name = run.name("none")
    for _ in range(2):
        response = await run.request("Metadata", topics=[{"name": name}], allow_auto_topic_creation=False)
        (entry,) = response.topics
        equal("ErrorCode", entry.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        equal("partitions", list(entry.partitions), [])
        equal("TopicId", bytes(entry.topic_id), ZERO_UUID)


@case_for_each(
    {name: (text,) for name, text in INVALID_NAMES.items() if name != "empty"},
    "metadata.topic.invalid-name-{name}",
    "Topic.validate",
)
async def invalid_name(run: CaseRun, text: str) -> None:
    """A topic name that is invalid ({name}) gets INVALID_TOPIC_EXCEPTION."""
    response = await run.request("Metadata", topics=[{"name": text}], allow_auto_topic_creation=False)
    equal("ErrorCode", response.topics[0].error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)


@case("metadata.topics.none", "MetadataRequest.json")
async def no_topics(run: CaseRun) -> None:
    """An empty list of topics returns brokers and no topics."""
    response = await run.request("Metadata", topics=[])
    equal("topics", list(response.topics), [])
    true("brokers", len(response.brokers) > 0, "at least one")


@case("metadata.topics.all", "MetadataRequest.json")
async def all_topics(run: CaseRun) -> None:
    """Null topics return all topics, this one among them."""
    topic = await run.topic()
    response = await run.request("Metadata", topics=None)
    names = [each.name for each in response.topics]
    equal("entries of the topic", names.count(topic.name), 1)


@case("metadata.topics.several", "MetadataResponse.json")
async def several(run: CaseRun) -> None:
    """Several topics are returned, each once, with its own error."""
    topic, none = await run.topic(), run.name("none")
    response = await run.request(
        "Metadata", topics=[{"name": topic.name}, {"name": none}], allow_auto_topic_creation=False
    )
    codes = {each.name: each.error_code for each in response.topics}
    equal("errors", codes, {topic.name: 0, none: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)})


@case("metadata.brokers.reachable", SCHEMA)
async def reachable(run: CaseRun) -> None:
    """Every broker of Metadata can be connected to and serves."""
    for address in (await run.cluster.brokers(await run.connection())).values():
        response = await (await run.connect(address)).request("ApiVersions", 0)
        equal("ErrorCode", response.error_code, ErrorCode.NONE)


@case("metadata.brokers.same-cluster", "KIP-700; DescribeClusterResponse.json", needs=("DescribeCluster:0",))
async def same_cluster(run: CaseRun) -> None:
    """Metadata and DescribeCluster agree on cluster id and brokers."""
    first = await run.request("Metadata", topics=[])
    second = await run.request("DescribeCluster", version=0)
    equal("cluster id", second.cluster_id, first.cluster_id)
    actual = sorted((each.broker_id, each.host, each.port) for each in second.brokers)
    equal("brokers", actual, sorted((each.node_id, each.host, each.port) for each in first.brokers))


@case("metadata.brokers.controller", SCHEMA)
async def controller(run: CaseRun) -> None:
    """The controller of Metadata is one of the brokers."""
    response = await run.request("Metadata", topics=[])
    nodes = [each.node_id for each in response.brokers]
    true("ControllerId", response.controller_id in nodes, f"one of {nodes}", response.controller_id)


@case(
    "metadata.partitions.described",
    "KIP-966; DescribeTopicPartitionsResponse.json",
    needs=("DescribeTopicPartitions:0",),
)
async def partitions_described(run: CaseRun) -> None:
    """DescribeTopicPartitions shows the partitions of a topic in order, with leaders and epochs."""
    topic = await run.topic(3)
    response = await run.request("DescribeTopicPartitions", topics=[{"name": topic.name}])
    (entry,) = response.topics
    equal("error and id", (entry.error_code, bytes(entry.topic_id)), (0, topic.topic_id))
    equal("leaders", [(p.partition_index, p.leader_id) for p in entry.partitions], sorted(topic.leaders.items()))
    equal("NextCursor", response.next_cursor, None)


@case(
    "metadata.partitions.cursor", "KIP-966; DescribeTopicPartitionsRequest.json", needs=("DescribeTopicPartitions:0",)
)
async def cursor(run: CaseRun) -> None:
    """DescribeTopicPartitions with a limit of two partitions returns a cursor, from which the next request
    continues.
    """
    topic = await run.topic(3)
    first = await run.request("DescribeTopicPartitions", topics=[{"name": topic.name}], response_partition_limit=2)
    equal("first partitions", [p.partition_index for p in first.topics[0].partitions], [0, 1])
    actual = (first.next_cursor.topic_name, first.next_cursor.partition_index)
    equal("NextCursor", actual, (topic.name, 2))
    following = {"topic_name": topic.name, "partition_index": 2}
    second = await run.request("DescribeTopicPartitions", topics=[{"name": topic.name}], cursor=following)
    equal("remaining partitions", [p.partition_index for p in second.topics[0].partitions], [2])


# Topics


async def create(run: CaseRun, **fields: Any) -> Any:
    """Return the topic of a CreateTopics response."""
    requested: dict[str, Any] = {"name": run.name("topic"), "num_partitions": 1, "replication_factor": -1} | fields
    run.cluster.topics.add(requested["name"])
    validate_only = bool(fields.pop("validate_only", False))
    requested.pop("validate_only", None)
    response = await run.request("CreateTopics", topics=[requested], timeout_ms=9000, validate_only=validate_only)
    return response.topics[0]


@case_for_each(
    {
        "partitions": ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        "replicas": ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        "many-replicas": ({"replication_factor": 99}, ErrorCode.INVALID_REPLICATION_FACTOR),
        "setting": ({"configs": [{"name": "no.such.setting", "value": "1"}]}, ErrorCode.INVALID_CONFIG),
        "value": ({"configs": [{"name": "retention.ms", "value": "soon"}]}, ErrorCode.INVALID_CONFIG),
        **{f"name-{key}": ({"name": text}, ErrorCode.INVALID_TOPIC_EXCEPTION) for key, text in INVALID_NAMES.items()},
    },
    "metadata.create.invalid-{name}",
    CREATION,
)
async def create_invalid(run: CaseRun, fields: dict[str, Any], code: ErrorCode) -> None:
    """CreateTopics with an invalid {name} gets {1.name}."""
    equal("ErrorCode", (await create(run, **fields)).error_code, code)


@case("metadata.create.exists", CREATION)
async def create_existing(run: CaseRun) -> None:
    """Creating an existing topic gets TOPIC_ALREADY_EXISTS."""
    topic = await run.topic()
    equal("ErrorCode", (await create(run, name=topic.name)).error_code, ErrorCode.TOPIC_ALREADY_EXISTS)


@case("metadata.create.returned", "KIP-525; CreateTopicsResponse.json", needs=("CreateTopics:7",))
async def create_returned(run: CaseRun) -> None:
    """CreateTopics returns topic id, number of partitions and replicas."""
    created = await create(run, num_partitions=3)
    equal("error and partitions", (created.error_code, created.num_partitions), (0, 3))
    true("TopicId", bytes(created.topic_id) != ZERO_UUID, "not zero")
    true("ReplicationFactor", created.replication_factor >= 1, "1 or above", created.replication_factor)


@case("metadata.create.validate-only", "CreateTopicsRequest.json")
async def create_validate_only(run: CaseRun) -> None:
    """CreateTopics with ValidateOnly creates nothing."""
    name = run.name("topic")
    codes = [(await create(run, name=name, validate_only=True)).error_code for _ in range(2)]
    equal("ErrorCodes of two requests", codes, [0, 0])
    response = await run.request("Metadata", topics=[{"name": name}], allow_auto_topic_creation=False)
    equal("error of Metadata", response.topics[0].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@case("metadata.create.twice-in-one", CREATION)
async def create_twice(run: CaseRun) -> None:
    """A topic named twice in CreateTopics gets INVALID_REQUEST."""
    requested = {"name": run.name("topic"), "num_partitions": 1, "replication_factor": -1}
    response = await run.request("CreateTopics", topics=[requested, requested], timeout_ms=9000)
    equal("ErrorCodes", {each.error_code for each in response.topics}, {int(ErrorCode.INVALID_REQUEST)})


@case("metadata.delete.unknown-afterwards", "DeleteTopicsResponse.json")
async def delete_topic_then_describe(run: CaseRun) -> None:
    """A deleted topic is unknown, and its id too."""
    topic = await run.topic()
    response = await run.request("DeleteTopics", topic_names=[topic.name], timeout_ms=9000)
    equal("ErrorCode", response.responses[0].error_code, ErrorCode.NONE)

    async def is_absent() -> bool:
        shown = await run.request("Metadata", topics=[{"name": topic.name}], allow_auto_topic_creation=False)
        return bool(shown.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    await run.until(is_absent, "UNKNOWN_TOPIC_OR_PARTITION")


@case("metadata.delete.by-id", "KIP-516", needs=("DeleteTopics:6",))
async def delete_by_id(run: CaseRun) -> None:
    """DeleteTopics v6 deletes by topic id."""
    topic = await run.topic()
    requested = [{"name": None, "topic_id": topic.topic_id}]
    response = await run.request("DeleteTopics", version=6, topics=requested, timeout_ms=9000)
    actual = response.responses[0]
    equal("error and name", (actual.error_code, actual.name), (0, topic.name))


@case("metadata.delete.unknown-id", "KIP-516", needs=("DeleteTopics:6",))
async def delete_unknown_id(run: CaseRun) -> None:
    """An unknown id gets UNKNOWN_TOPIC_ID."""
    requested = [{"name": None, "topic_id": UNKNOWN_ID}]
    response = await run.request("DeleteTopics", version=6, topics=requested, timeout_ms=9000)
    equal("ErrorCode", response.responses[0].error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@case("metadata.recreate.new-id", "KIP-516")
async def recreated(run: CaseRun) -> None:
    """A topic that is deleted and created again has another id."""
    topic = await run.topic()
    await run.request("DeleteTopics", topic_names=[topic.name], timeout_ms=9000)

    async def created() -> bool:
        return bool((await create(run, name=topic.name)).error_code == 0)

    async def replaced() -> bool:
        again = await run.cluster.await_topic(await run.connection(), topic.name, 1)
        return bool(again.topic_id != topic.topic_id)

    await run.until(created, "a second creation")
    await run.until(replaced, "another topic id")


@case_for_each(
    {
        "more": (3, ErrorCode.NONE),
        "same": (2, ErrorCode.INVALID_PARTITIONS),
        "fewer": (1, ErrorCode.INVALID_PARTITIONS),
    },
    "metadata.partitions.{name}",
    "CreatePartitionsResponse.json",
)
async def partitions(run: CaseRun, count: int, code: ErrorCode) -> None:
    """CreatePartitions to {0} of a topic with two gets {1.name}."""
    topic = await run.topic(2)
    requested = [{"name": topic.name, "count": count, "assignments": None}]
    response = await run.request("CreatePartitions", topics=requested, timeout_ms=9000)
    equal("ErrorCode", response.results[0].error_code, code)
    await run.cluster.await_topic(await run.connection(), topic.name, max(2, count))


# Settings


async def topic_setting(run: CaseRun, topic: str, name: str) -> Any:
    """Return one setting of DescribeConfigs."""
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": [name]}
    response = await run.request("DescribeConfigs", resources=[resource])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.NONE)
    (setting,) = response.results[0].configs
    return setting


@case("metadata.settings.own", "KIP-226")
async def own_setting(run: CaseRun) -> None:
    """A setting of a topic is described with its value and source 1."""
    topic = await run.topic(configs={"retention.ms": "12345678"})
    setting = await topic_setting(run, topic.name, "retention.ms")
    equal(
        "value, source and sensitivity",
        (setting.value, setting.config_source, setting.is_sensitive),
        ("12345678", 1, False),
    )


@case("metadata.settings.default", "KIP-226")
async def default_setting(run: CaseRun) -> None:
    """A setting that was not set has source 5."""
    topic = await run.topic()
    setting = await topic_setting(run, topic.name, "cleanup.policy")
    equal("value", setting.value, "delete")
    one_of("source", setting.config_source, [5, 4, 2, 3])


@case_for_each(
    {"set": (0, "1000000"), "deleted": (1, None)},
    "metadata.settings.incremental-{name}",
    "KIP-339; IncrementalAlterConfigsRequest.json",
)
async def incremental(run: CaseRun, operation: int, value: str | None) -> None:
    """IncrementalAlterConfigs with the operation {0} leaves retention.ms at {1} (null: its default)."""
    topic = await run.topic(configs={"retention.ms": "12345678"})
    change = {"name": "retention.ms", "config_operation": operation, "value": value}
    resource = {"resource_type": 2, "resource_name": topic.name, "configs": [change]}
    response = await run.request("IncrementalAlterConfigs", resources=[resource])
    equal("ErrorCode", response.responses[0].error_code, ErrorCode.NONE)

    async def is_shown() -> bool:
        setting = await topic_setting(run, topic.name, "retention.ms")
        return bool(setting.value == value if value is not None else setting.config_source != 1)

    await run.until(is_shown, "the new value")


@case("metadata.settings.invalid", "KIP-339")
async def invalid_setting(run: CaseRun) -> None:
    """An invalid value gets INVALID_CONFIG and changes nothing."""
    topic = await run.topic(configs={"retention.ms": "12345678"})
    change = {"name": "retention.ms", "config_operation": 0, "value": "soon"}
    resource = {"resource_type": 2, "resource_name": topic.name, "configs": [change]}
    response = await run.request("IncrementalAlterConfigs", resources=[resource])
    equal("ErrorCode", response.responses[0].error_code, ErrorCode.INVALID_CONFIG)
    equal("value", (await topic_setting(run, topic.name, "retention.ms")).value, "12345678")


# Coordinators


@case_for_each({"group": (0,), "transaction": (1,)}, "metadata.coordinator.{name}", "FindCoordinatorResponse.json")
async def coordinator(run: CaseRun, kind: int) -> None:
    """FindCoordinator of a {name} returns one of the brokers with its address."""
    key = run.name("key")
    await run.coordinator(key, kind)
    response = await run.request("FindCoordinator", key_type=kind, coordinator_keys=[key])
    (entry,) = response.coordinators
    brokers = await run.cluster.brokers(await run.connection())
    equal("error and key", (entry.error_code, entry.key), (0, key))
    equal("address", (entry.host, entry.port), tuple(brokers[entry.node_id]))


@case("metadata.coordinator.several", "KIP-699", needs=("FindCoordinator:4",))
async def several_coordinators(run: CaseRun) -> None:
    """FindCoordinator v4 returns several groups, each with its key."""
    keys = [run.name("key") for _ in range(3)]
    await run.coordinator(keys[0])
    response = await run.request("FindCoordinator", key_type=0, coordinator_keys=keys)
    equal("keys", sorted(each.key for each in response.coordinators), sorted(keys))
