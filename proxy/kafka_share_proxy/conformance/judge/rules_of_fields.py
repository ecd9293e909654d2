"""Rules for the values of fields in any request, found from the message definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from kafka_share_proxy.conformance.judge.events import ReceivedRequest
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.rule import ClientRules
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.definitions.specs import FieldSpec
from kafka_share_proxy.wire.values import ZERO_UUID

TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""Names of topics (Topic.validate)."""
PARTITION_FIELDS = frozenset({"Index", "Partition", "PartitionIndex", "PartitionIndexes", "Partitions"})
TIMEOUT_FIELDS = frozenset({"MaxWaitMs", "SessionTimeoutMs", "TimeoutMs", "TransactionTimeoutMs"})
WITH_TOPIC_IDS = frozenset(
    {ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.PRODUCE, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_FETCH}
)
GROUP_APIS = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.HEARTBEAT,
        ApiKey.JOIN_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SYNC_GROUP,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
COMMITS = frozenset({ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT})
METADATA_BYTES_MAX = 4096
"""Bytes of the metadata of a committed offset (Kafka: offset.metadata.max.bytes)."""
ISOLATION_LEVELS = frozenset({0, 1})
ACKS = frozenset({-1, 0, 1})
SPECIAL_TIMESTAMP_MIN = -6
"""Lowest special timestamp of ListOffsets (KIP-1005, KIP-1023)."""

RULES = ClientRules()


def fields(message: Message, version: int) -> Iterator[tuple[FieldSpec, Any]]:
    """Yield every field of a message with its value, those of nested structures included."""
    for spec in type(message).SPEC.fields:
        if version not in spec.versions:
            continue
        value = getattr(message, spec.attribute)
        yield spec, value
        if spec.struct is not None and value is not None:
            for nested in value if spec.is_array else (value,):
                yield from fields(nested, version)


@lru_cache(maxsize=1)
def _fields_of(event: ReceivedRequest) -> list[tuple[FieldSpec, Any]]:
    """Return every field of a request. The last result is cached, because five rules need it."""
    return list(fields(event.request, event.version))


@RULES.rule("partition-negative", "message definitions")
def _partitions(event: ReceivedRequest, _: History) -> Iterator[str]:
    """Partitions are numbered from 0."""
    for spec, value in _fields_of(event):
        if spec.name in PARTITION_FIELDS and spec.type == "int32":
            for index in value or () if spec.is_array else (value,):
                if index < 0:
                    yield f"{spec.name} is {index}"


@RULES.rule("topic-name-invalid", "Topic.validate")
def _topics(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A topic name has 1 to 249 letters, digits, '.', '_' and '-', and is neither '.' nor '..'."""
    for spec, value in _fields_of(event):
        if spec.entity == "topicName" and value is not None:
            for name in value if spec.is_array else (value,):
                if not (name is None or TOPIC.fullmatch(name)):
                    yield f"{spec.name} is {name!r}"


@RULES.rule("topic-id-zero", "KIP-516", keys=WITH_TOPIC_IDS)
def _topic_ids(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A request with topic ids has no zero topic id."""
    for spec, value in _fields_of(event):
        if spec.name == "TopicId" and bytes(value) == ZERO_UUID:
            yield "TopicId is zero"


@RULES.rule("group-id-empty", "GroupCoordinatorService.isGroupIdNotEmpty", keys=GROUP_APIS)
def _group(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A member of a group names it."""
    if not event.request.group_id:
        yield f"GroupId is {event.request.group_id!r}"


@RULES.rule("timeout-negative", "message definitions")
def _timeouts(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A timeout is at least 0 milliseconds."""
    if event.key == ApiKey.INIT_PRODUCER_ID and event.request.transactional_id is None:
        return  # without a transaction, brokers ignore its timeout
    for spec, value in _fields_of(event):
        if spec.name in TIMEOUT_FIELDS and value < 0:
            yield f"{spec.name} is {value}"


@RULES.rule(
    "isolation-level-invalid", "KIP-98; IsolationLevel.forId", keys=frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS})
)
def _isolation(event: ReceivedRequest, _: History) -> Iterator[str]:
    """The isolation level is 0 (read_uncommitted) or 1 (read_committed)."""
    if event.request.isolation_level not in ISOLATION_LEVELS:
        yield f"IsolationLevel is {event.request.isolation_level}"


@RULES.rule("acks-invalid", "ProduceRequest.json; ReplicaManager.isValidRequiredAcks", keys=frozenset({ApiKey.PRODUCE}))
def _acks(event: ReceivedRequest, _: History) -> Iterator[str]:
    """Acks is -1, 0 or 1."""
    if event.request.acks not in ACKS:
        yield f"Acks is {event.request.acks}"


@RULES.rule(
    "replica-id-set", "FetchRequest.json; only followers have one", keys=frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS})
)
def _replica(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A client has no replica id (-1)."""
    for spec, value in _fields_of(event):
        if spec.name == "ReplicaId" and value != -1:
            yield f"ReplicaId is {value}"


@RULES.rule("partition-repeated", "message definitions (mapKey)")
def _repeated(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A request lists each partition once."""
    listed: set[tuple[Any, int]] = set()
    for topic in _topic_entries(event.request):
        name = getattr(topic, "name", "") or getattr(topic, "topic", "") or bytes(getattr(topic, "topic_id", b""))
        for partition in getattr(topic, "partitions", None) or getattr(topic, "partition_data", None) or ():
            index = next((getattr(partition, each) for each in INDEX_ATTRIBUTES if hasattr(partition, each)), partition)
            if not isinstance(index, int):
                return
            if (name, index) in listed:
                shown = name.hex() if isinstance(name, bytes) else name
                yield f"partition {index} of topic {shown} is listed twice"
            listed.add((name, index))


INDEX_ATTRIBUTES = ("partition_index", "partition", "index")


def _topic_entries(request: Message) -> list[Any]:
    topics = getattr(request, "topics", None) or getattr(request, "topic_data", None) or []
    return [topic for topic in topics if isinstance(topic, Message)]


@RULES.rule(
    "fetch-sizes-negative",
    "FetchRequest.json; ShareFetchRequest.json",
    keys=frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH}),
)
def _fetch_sizes(event: ReceivedRequest, _: History) -> Iterator[str]:
    """Sizes and numbers of records of a fetch are not negative."""
    request = event.request
    if request.min_bytes < 0 or request.max_bytes < 0:
        yield f"MinBytes is {request.min_bytes}, MaxBytes is {request.max_bytes}"
    if event.key == ApiKey.SHARE_FETCH and (request.max_records < 0 or request.batch_size < 0):
        yield f"MaxRecords is {request.max_records}, BatchSize is {request.batch_size}"


@RULES.rule(
    "fetch-offset-negative", "FetchRequest.json; brokers return OFFSET_OUT_OF_RANGE", keys=frozenset({ApiKey.FETCH})
)
def _fetch_offsets(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A consumer fetches from an offset of at least 0."""
    for topic in event.request.topics:
        for partition in topic.partitions:
            if partition.fetch_offset < 0:
                yield f"FetchOffset of partition {partition.partition} is {partition.fetch_offset}"


@RULES.rule("commit-invalid", "OffsetMetadataManager; offset.metadata.max.bytes", keys=COMMITS)
def _commits(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A committed offset is at least 0, and its metadata has at most 4,096 bytes."""
    for topic in event.request.topics:
        for partition in topic.partitions:
            if partition.committed_offset < 0:
                yield f"CommittedOffset of partition {partition.partition_index} is {partition.committed_offset}"
            size = len((partition.committed_metadata or "").encode())
            if size > METADATA_BYTES_MAX:
                yield f"CommittedMetadata of partition {partition.partition_index} has {size} bytes"


@RULES.rule("timestamp-invalid", "ListOffsetsRequest.json; KIP-1005", keys=frozenset({ApiKey.LIST_OFFSETS}))
def _timestamps(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A negative timestamp is one of the special ones."""
    for topic in event.request.topics:
        for partition in topic.partitions:
            if partition.timestamp < SPECIAL_TIMESTAMP_MIN:
                yield f"Timestamp of partition {partition.partition_index} is {partition.timestamp}"
