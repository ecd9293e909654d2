"""Topics for dead letters: whether they exist and may be written, and their creation (sharegroups/README.md rule 86).

Requests are sent under the proxy's own identity. A topic that may be written is remembered for CHECK_S.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.brokers.operations import missing_on
from kafka_share_proxy.brokers.queries import Resource, TopicEntry, about_settings, about_topics
from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.sharegroups.settings import DeadLetters
from kafka_share_proxy.wire.acl_operations import AclOperation
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name

R = TypeVar("R", bound=Message)

PERMISSION = "errors.deadletterqueue.group.enable"
"""Topic setting of Kafka 4.4 that allows dead letters in a topic. Earlier brokers do not know it."""
MESSAGE_BYTES = "max.message.bytes"
MESSAGE_BYTES_DEFAULT = 1 << 20
TIMESTAMP_TYPE, CREATE_TIME = "message.timestamp.type", "CreateTime"
BY_DEFAULT = -1
"""Number of partitions or replicas of a new topic: the broker's default."""
CREATE_MS = 10_000
CHECK_S = 30.0
"""Seconds for which a checked topic counts as unchanged. A refused write checks it earlier."""
TOPICS_MAX = 1_000
"""Maximum number of topics remembered."""


class NotWritable(ProxyError):
    """A topic for dead letters cannot be written. The text says why, and how to correct it."""


class TargetTopic(NamedTuple):
    """A topic that may be written."""

    name: str
    partitions: int
    batch_bytes: int
    """Maximum bytes of a batch."""


def existing(name: str, entry: TopicEntry) -> TopicEntry | None:
    """Return the entry of a topic in a Metadata response, None if the topic does not exist.

    Raises NotWritable without DESCRIBE, UpstreamLost for any other error.
    """
    if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if entry.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise NotWritable(f"the proxy's own identity has no DESCRIBE on topic {name}; it needs WRITE too")
    if entry.error_code != ErrorCode.NONE or not entry.partitions:
        raise UpstreamLost(f"topic {name}: {error_name(entry.error_code)}")
    return entry


def check_permission(name: str, entry: TopicEntry, values: Mapping[str, str], settings: DeadLetters) -> None:
    """Raise NotWritable if the identity may not write the topic, or it may not get dead letters."""
    if missing_on(entry, [AclOperation.WRITE]):
        raise NotWritable(f"the proxy's own identity has no WRITE on topic {name}")
    permission = values.get(PERMISSION)
    if permission is not None:
        if permission.lower() != "true":
            raise NotWritable(f"topic {name} does not allow dead letters: set its {PERMISSION}=true")
    elif not any(fnmatchcase(name, pattern) for pattern in settings.topics) and not _is_created(name, settings):
        raise NotWritable(
            f"topic {name} may not get dead letters: its brokers do not have the setting {PERMISSION}, and no "
            "pattern of share_groups.dead_letters.topics matches it"
        )


def check_creation(name: str, settings: DeadLetters) -> None:
    """Raise NotWritable if a missing topic is not created."""
    if not settings.auto_create_topics:
        raise NotWritable(
            f"topic {name} does not exist: create it, or set share_groups.dead_letters.auto_create_topics=true"
        )
    if not _is_created(name, settings):
        raise NotWritable(
            f"topic {name} does not exist and is not created, because its name does not begin with "
            f"{settings.topic_name_prefix} (share_groups.dead_letters.topic_name_prefix)"
        )


def _is_created(name: str, settings: DeadLetters) -> bool:
    return settings.auto_create_topics and name.startswith(settings.topic_name_prefix)


class TargetTopics:
    """Checks of the topics for dead letters."""

    def __init__(self, own: ClusterQueries, topology: ClusterMetadata, timers: Timers, settings: DeadLetters) -> None:
        self._own, self._topology, self._timers, self._settings = own, topology, timers, settings
        self._checked: dict[str, tuple[float, TargetTopic]] = {}

    def forget(self, name: str) -> None:
        """Check a topic again before its next use, because a write failed."""
        self._checked.pop(name, None)

    async def of(self, name: str) -> TargetTopic:
        """Return a topic that may be written. Raises NotWritable, or another ProxyError if no broker responds."""
        now = self._timers.now()
        known = self._checked.get(name)
        if known is not None and now - known[0] < CHECK_S:
            return known[1]
        entry = await self._described(name)
        if entry is None:
            await self._create(name)
            entry = await self._described(name)
            if entry is None:
                raise UpstreamLost(f"topic {name} was created and is not known to all brokers yet")
        values = await self._values(name)
        check_permission(name, entry, values, self._settings)
        target = TargetTopic(name, len(entry.partitions), int(values.get(MESSAGE_BYTES) or MESSAGE_BYTES_DEFAULT))
        if len(self._checked) >= TOPICS_MAX:
            self._checked.clear()
        self._checked[name] = now, target
        return target

    async def _described(self, name: str) -> TopicEntry | None:
        response = await self._query(ApiKey.METADATA, about_topics([name], operations=True))
        (entry,) = response.topics
        return existing(name, entry)

    async def _values(self, name: str) -> Mapping[str, str]:
        """Return the settings of a topic that brokers report. Empty without DESCRIBE_CONFIGS."""
        request = about_settings(Resource.TOPIC, name, [PERMISSION, MESSAGE_BYTES])
        response = await self._query(ApiKey.DESCRIBE_CONFIGS, request)
        (result,) = response.results
        if result.error_code != ErrorCode.NONE:
            return {}
        return {each.name: each.value for each in result.configs or () if each.value is not None}

    async def _create(self, name: str) -> None:
        check_creation(name, self._settings)
        settings = {TIMESTAMP_TYPE: CREATE_TIME}
        code, text = await self._attempt_create(name, settings | {PERMISSION: "true"})
        if code == ErrorCode.INVALID_CONFIG:  # brokers before 4.4
            code, text = await self._attempt_create(name, settings)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise NotWritable(f"topic {name} cannot be created: {text or error_name(code)}")

    async def _attempt_create(self, name: str, settings: Mapping[str, str]) -> tuple[int, str | None]:
        message = messages.CreateTopicsRequest
        topic = message.CreatableTopic(
            name=name,
            num_partitions=BY_DEFAULT,
            replication_factor=BY_DEFAULT,
            assignments=[],
            configs=[message.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        response = await self._query(ApiKey.CREATE_TOPICS, message(topics=[topic], timeout_ms=CREATE_MS))
        (result,) = response.topics
        return result.error_code, result.error_message

    async def _query(self, key: int, request: RequestMessage[R]) -> R:
        """Return the response of the first broker that responds. Raises ProxyError."""
        failure: ProxyError = UpstreamLost("no broker is known")
        for node_id in sorted(self._topology.brokers):
            try:
                return await self._own.send_request(node_id, key, request)
            except ProxyError as error:
                failure = error
        raise failure
