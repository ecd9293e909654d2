"""Rights of a connection's principal, as its own upstream connection reports them: brokers/README.md rules 15 to 22.

A right is granted only by the codes of `GRANTS`, which Kafka 3.9.1 and 4.3.0 return only after their authorizer has
allowed the operation. Any other code refuses: 30, the -1 of an authorizer that throws, or a retriable one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto

from kafka_share_proxy.brokers.connection_slots import ConnectionSlot
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.queries import CoordinatorOf, about_coordinators
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode

HEARTBEAT_VERSION, FIND_COORDINATOR_VERSION, DESCRIBE_GROUPS_VERSION, OFFSET_DELETE_VERSION = 4, 4, 5, 0

PROBE_MEMBER = "kafka-share-proxy-rights-probe"

VERDICTS_BYTES_MAX = 1 << 20
"""Maximum bytes of the rights cached per connection: about 4,000 with usual names (brokers/README.md rule 22)."""
RIGHTS_AT_ONCE = 500
VERDICT_BYTES = 200


class Right(IntEnum):
    """Operation on a kind of resource. An IntEnum, because its hash is needed with every request."""

    READ_GROUP = auto()
    DESCRIBE_GROUP = auto()
    DESCRIBE_CLUSTER = auto()
    READ_TOPIC = auto()
    DESCRIBE_TOPIC = auto()


GRANTS: Mapping[int, frozenset[ErrorCode]] = {
    ApiKey.HEARTBEAT: frozenset(
        {
            NO_ERROR,  # the coordinator is loading the group (GroupCoordinatorService.heartbeat)
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.INVALID_GROUP_ID,  # empty group id
            ErrorCode.UNKNOWN_MEMBER_ID,  # any group, known or not, of every type
        }
    ),
    ApiKey.FIND_COORDINATOR: frozenset(
        {
            NO_ERROR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,  # before the topic of offsets exists, or without a leader of it
        }
    ),
    ApiKey.OFFSET_DELETE: frozenset(
        {
            NO_ERROR,  # a classic or consumer group has the id
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.INVALID_GROUP_ID,  # empty group id
            ErrorCode.NON_EMPTY_GROUP,  # a classic group with members that are no consumers has the id
            ErrorCode.GROUP_ID_NOT_FOUND,
        }
    ),
}
"""API key of a request -> error codes that grant the right."""


@dataclass(slots=True)
class Rights:
    """Rights cached for one connection, by name of group or topic."""

    verdicts: dict[tuple[Right, str], tuple[bool, float]] = field(default_factory=dict)
    bytes: int = 0

    def verdict(self, right: Right, name: str, now: float, cache_s: float) -> bool | None:
        """True if allowed, False if refused, None if it must be queried."""
        remembered = self.verdicts.get((right, name))
        if remembered is None or now - remembered[1] > cache_s:
            return None
        return remembered[0]

    def group_code(self, right: Right, group_id: str, now: float, cache_s: float) -> ErrorCode | None:
        """Return a cached verdict as the error code for a client. None if it must be queried."""
        allowed = self.verdict(right, group_id, now, cache_s)
        if allowed is None:
            return None
        return NO_ERROR if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED

    def remember_group(self, right: Right, group_id: str, code: ErrorCode, now: float) -> None:
        """Cache the verdict, unless the code neither grants nor refuses the right."""
        if code in (NO_ERROR, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            self.remember(right, group_id, code == NO_ERROR, now)

    def remember(self, right: Right, name: str, allowed: bool, now: float) -> None:
        if self.verdicts.pop((right, name), None) is None:
            self.bytes += _bytes_of(name)
        self.verdicts[right, name] = (allowed, now)
        if self.bytes > VERDICTS_BYTES_MAX:
            self._forget_half()

    def _forget_half(self) -> None:
        for oldest in list(self.verdicts):
            if self.bytes <= VERDICTS_BYTES_MAX // 2:
                return
            del self.verdicts[oldest]
            self.bytes -= _bytes_of(oldest[1])


def _bytes_of(name: str) -> int:
    return VERDICT_BYTES + 4 * len(name)


AbsentTopics = dict[str | bytes, tuple[float, int]]
"""Topics, by name or id, that the broker did not show -> (time of the response, error code)."""

_RIGHTS = ConnectionSlot(Rights)
_ABSENT_TOPICS = ConnectionSlot[AbsentTopics](dict)


def rights_of(connection: Connection) -> Rights:
    return _RIGHTS.of(connection)


def absent_topics_of(connection: Connection) -> AbsentTopics:
    """Return a dict that the caller modifies."""
    return _ABSENT_TOPICS.of(connection)


def forget(connection: Connection) -> None:
    """Forget all, because the principal may change."""
    _RIGHTS.forget(connection)
    _ABSENT_TOPICS.forget(connection)


def refusal(query: int, code: int) -> ErrorCode:
    """Return NONE if this code grants the right, else the code."""
    return NO_ERROR if code in GRANTS[query] else ErrorCode.of(code)


def request_read_group(connection: Connection, group_id: str) -> Promise[memoryview]:
    """Request READ on a group, for `on_read_group`."""
    request = messages.HeartbeatRequest(group_id=group_id, generation_id=0, member_id=PROBE_MEMBER)
    return connection.send_request(
        ApiKey.HEARTBEAT, HEARTBEAT_VERSION, registry.request(ApiKey.HEARTBEAT, HEARTBEAT_VERSION).encode(request)
    )


def on_read_group(connection: Connection, group_id: str, response: memoryview, now: float) -> ErrorCode:
    """Cache and return NONE, or the code that refuses."""
    decoded = registry.codec_of(messages.HeartbeatResponse, HEARTBEAT_VERSION).decode(response)
    code = refusal(ApiKey.HEARTBEAT, decoded.error_code)
    rights_of(connection).remember_group(Right.READ_GROUP, group_id, code, now)
    return code


def request_describe_groups(connection: Connection, group_ids: Sequence[str]) -> list[Promise[memoryview]]:
    parts = (group_ids[start : start + RIGHTS_AT_ONCE] for start in range(0, len(group_ids), RIGHTS_AT_ONCE))
    return [_request_describe_groups(connection, part) for part in parts]


def _request_describe_groups(connection: Connection, group_ids: Sequence[str]) -> Promise[memoryview]:
    request = about_coordinators(CoordinatorOf.GROUP, group_ids)
    body = registry.request(ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION).encode(request)
    return connection.send_request(ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body)


def on_describe_groups(connection: Connection, response: memoryview, now: float) -> dict[str, ErrorCode]:
    """Cache and return NONE, or the code that refuses, for each group.

    A caller with many groups must use the result: only as many as fit into `VERDICTS_BYTES_MAX` are cached.
    """
    rights = rights_of(connection)
    decoded = registry.codec_of(messages.FindCoordinatorResponse, FIND_COORDINATOR_VERSION).decode(response)
    codes = {}
    for entry in decoded.coordinators:
        codes[entry.key] = code = refusal(ApiKey.FIND_COORDINATOR, entry.error_code)
        rights.remember_group(Right.DESCRIBE_GROUP, entry.key, code, now)
    return codes


def request_delete_group(connection: Connection, group_id: str) -> Promise[memoryview]:
    request = messages.OffsetDeleteRequest(group_id=group_id, topics=[])
    body = registry.request(ApiKey.OFFSET_DELETE, OFFSET_DELETE_VERSION).encode(request)
    return connection.send_request(ApiKey.OFFSET_DELETE, OFFSET_DELETE_VERSION, body)


def on_delete_group(response: memoryview) -> ErrorCode:
    decoded = registry.codec_of(messages.OffsetDeleteResponse, OFFSET_DELETE_VERSION).decode(response)
    return refusal(ApiKey.OFFSET_DELETE, decoded.error_code)


def request_group_bits(connection: Connection, group_ids: Sequence[str]) -> Promise[memoryview]:
    """Request the authorized operations on groups, existing or not."""
    request = messages.DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=True)
    body = registry.request(ApiKey.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION).encode(request)
    return connection.send_request(ApiKey.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, body)


def group_bits(response: memoryview) -> dict[str, tuple[int, int]]:
    """Return group id -> (error code, bits). Brokers may change the order of the groups."""
    described = registry.codec_of(messages.DescribeGroupsResponse, DESCRIBE_GROUPS_VERSION).decode(response)
    return {group.group_id: (group.error_code, group.authorized_operations) for group in described.groups}
