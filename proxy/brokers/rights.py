"""What a connection's principal may do, as its own upstream connection says.

The proxy does not know principals. It asks the broker on the client's connection and believes the answer, yes or no,
for a bounded time on that connection only. Nothing here changes anything upstream:

- READ on a group: Heartbeat v4 of a member that cannot exist. Any broker judges the right before it looks whether it is
  the coordinator.
- DESCRIBE on a group: FindCoordinator v4.
- DELETE on a group: OffsetDelete v0 without topics. Never remembered: deletions are rare.
- Rights on topics: the bits of Metadata v8+ (`leadership`), or what a Fetch said about the topic.
- The bits that an answer shows: DescribeGroups v5 (v6 gives none for ids that are no classic group); 16 is passed on.

A right is granted by the codes of `GRANTS` and by no other: those that Kafka 3.9.1 and 4.3.0 give only once their
authorizer has said yes. Any other code refuses with itself, be it 30, the -1 of an authorizer that throws, or one that
tells the client to come again; only 30 is remembered as a no.

A connection that has not authenticated is refused by its broker at the first of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto

from proxy.brokers.connection_slots import ConnectionSlot, HasSlots
from proxy.brokers.interfaces import Connection
from proxy.brokers.questions import CoordinatorOf, about_coordinators
from proxy.loop.promise import Promise
from proxy.wire import messages, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

HEARTBEAT_VERSION, FIND_COORDINATOR_VERSION, DESCRIBE_GROUPS_VERSION, OFFSET_DELETE_VERSION = 4, 4, 5, 0

READ_BIT, DESCRIBE_BIT = 1 << 3, 1 << 8
"""Operation codes as bits of an authorized-operations field (org.apache.kafka.common.acl.AclOperation)."""

NO_BITS = -2147483648
"""An authorized-operations field that says nothing."""

PROBE_MEMBER = "kafka-share-proxy-rights-probe"
"""A member id nobody has."""

VERDICTS_BYTES_MAX = 1 << 20
"""Memory for the rights remembered per connection, about 4,000 of them with usual names; past it the older half is
forgotten, and asked again. A group id may have 32 KiB."""
RIGHTS_AT_ONCE = 500
"""Groups whose DESCRIBE right is asked about in one request."""
VERDICT_BYTES = 200
"""What a right takes beside its name."""


class Right(IntEnum):
    """What may be asked. An IntEnum for its hash, which is looked up with every request."""

    READ_GROUP = auto()
    DESCRIBE_GROUP = auto()
    DESCRIBE_CLUSTER = auto()
    READ_TOPIC = auto()
    DESCRIBE_TOPIC = auto()


GRANTS: Mapping[int, frozenset[ErrorCode]] = {
    ApiKey.HEARTBEAT: frozenset(
        {
            ErrorCode.NONE,  # the coordinator is loading the group (GroupCoordinatorService.heartbeat)
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.INVALID_GROUP_ID,  # of an empty id
            ErrorCode.UNKNOWN_MEMBER_ID,  # of any group, known or not, of every type
        }
    ),
    ApiKey.FIND_COORDINATOR: frozenset(
        {
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,  # before the topic of offsets exists, or without a leader of it
        }
    ),
    ApiKey.OFFSET_DELETE: frozenset(
        {
            ErrorCode.NONE,  # a classic or consumer group has the id
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.INVALID_GROUP_ID,  # of an empty id
            ErrorCode.NON_EMPTY_GROUP,  # a classic group with members that are no consumers has the id
            ErrorCode.GROUP_ID_NOT_FOUND,
        }
    ),
}
"""API key of a question -> the codes that grant what it asks for."""


@dataclass(slots=True)
class Rights:
    """What is remembered for one connection. Groups and topics by name."""

    verdicts: dict[tuple[Right, str], tuple[bool, float]] = field(default_factory=dict)
    """(allowed, asked at)"""
    bytes: int = 0
    """About how much memory they take."""

    def verdict(self, right: Right, name: str, now: float, cache_s: float) -> bool | None:
        """Allowed, refused, or None = ask."""
        remembered = self.verdicts.get((right, name))
        if remembered is None or now - remembered[1] > cache_s:
            return None
        return remembered[0]

    def group_code(self, right: Right, group_id: str, now: float, cache_s: float) -> ErrorCode | None:
        """A verdict about a group as the code a client is told; NONE = allowed."""
        allowed = self.verdict(right, group_id, now, cache_s)
        if allowed is None:
            return None
        return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED

    def remember_group(self, right: Right, group_id: str, code: ErrorCode, now: float) -> None:
        """The broker has said so, now; a code that is neither yes nor no is not remembered."""
        if code in (ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            self.remember(right, group_id, code == ErrorCode.NONE, now)

    def remember(self, right: Right, name: str, allowed: bool, now: float) -> None:
        """The broker has said so, now."""
        if self.verdicts.pop((right, name), None) is None:
            self.bytes += _bytes_of(name)
        self.verdicts[right, name] = (allowed, now)
        if self.bytes > VERDICTS_BYTES_MAX:
            self._forget_half()

    def _forget_half(self) -> None:
        """Forget half of the verdicts, the oldest first."""
        for oldest in list(self.verdicts):
            if self.bytes <= VERDICTS_BYTES_MAX // 2:
                return
            del self.verdicts[oldest]
            self.bytes -= _bytes_of(oldest[1])


def _bytes_of(name: str) -> int:
    return VERDICT_BYTES + 4 * len(name)


AbsentTopics = dict[str | bytes, tuple[float, int]]
"""Topics, by name or id, that the broker did not show to a connection: when it said so, and the error code."""

_RIGHTS = ConnectionSlot(Rights)
_ABSENT_TOPICS = ConnectionSlot[AbsentTopics](dict)


def rights_of(connection: HasSlots) -> Rights:
    """The rights remembered for this connection."""
    return _RIGHTS.of(connection)


def absent_topics_of(connection: HasSlots) -> AbsentTopics:
    """The topics that this connection was not shown; the caller changes it."""
    return _ABSENT_TOPICS.of(connection)


def forget(connection: HasSlots) -> None:
    """The principal of this connection may change: its broker is asked anew for all rights and absent topics."""
    _RIGHTS.forget(connection)
    _ABSENT_TOPICS.forget(connection)


def refusal(question: int, code: int) -> ErrorCode:
    """NONE where the broker's answer to this question (an API key of `GRANTS`) grants the right, else its code."""
    return ErrorCode.NONE if code in GRANTS[question] else ErrorCode.of(code)


def ask_read_group(connection: Connection, group_id: str) -> Promise[memoryview]:
    """Send the question; `tell_read_group` understands the answer."""
    request = messages.HeartbeatRequest(group_id=group_id, generation_id=0, member_id=PROBE_MEMBER)
    return connection.ask(
        ApiKey.HEARTBEAT, HEARTBEAT_VERSION, registry.request(ApiKey.HEARTBEAT, HEARTBEAT_VERSION).encode(request)
    )


def tell_read_group(connection: Connection, group_id: str, answer: memoryview, now: float) -> ErrorCode:
    """Remember and give what the answer to `ask_read_group` says: NONE, or the code that refuses."""
    told = registry.codec_of(messages.HeartbeatResponse, HEARTBEAT_VERSION).decode(answer)
    code = refusal(ApiKey.HEARTBEAT, told.error_code)
    rights_of(connection).remember_group(Right.READ_GROUP, group_id, code, now)
    return code


def ask_describe_groups(connection: Connection, group_ids: Sequence[str]) -> list[Promise[memoryview]]:
    """Send the questions about DESCRIBE on groups, all at once; `tell_describe_groups` understands each answer."""
    parts = (group_ids[start : start + RIGHTS_AT_ONCE] for start in range(0, len(group_ids), RIGHTS_AT_ONCE))
    return [_ask_describe_groups(connection, part) for part in parts]


def _ask_describe_groups(connection: Connection, group_ids: Sequence[str]) -> Promise[memoryview]:
    request = about_coordinators(CoordinatorOf.GROUP, group_ids)
    body = registry.request(ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION).encode(request)
    return connection.ask(ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body)


def tell_describe_groups(connection: Connection, answer: memoryview, now: float) -> dict[str, ErrorCode]:
    """Remember and give what the answer to `ask_describe_groups` says of each group: NONE, or the code that refuses.

    Whoever asked about many goes by what this gives: more than fit into `VERDICTS_BYTES_MAX` are not remembered.
    """
    rights = rights_of(connection)
    told = registry.codec_of(messages.FindCoordinatorResponse, FIND_COORDINATOR_VERSION).decode(answer)
    found = {}
    for entry in told.coordinators:
        found[entry.key] = code = refusal(ApiKey.FIND_COORDINATOR, entry.error_code)
        rights.remember_group(Right.DESCRIBE_GROUP, entry.key, code, now)
    return found


def ask_delete_group(connection: Connection, group_id: str) -> Promise[memoryview]:
    """Send the question about DELETE on a group; `tell_delete_group` understands the answer."""
    request = messages.OffsetDeleteRequest(group_id=group_id, topics=[])
    body = registry.request(ApiKey.OFFSET_DELETE, OFFSET_DELETE_VERSION).encode(request)
    return connection.ask(ApiKey.OFFSET_DELETE, OFFSET_DELETE_VERSION, body)


def tell_delete_group(answer: memoryview) -> ErrorCode:
    """What the answer to `ask_delete_group` says: NONE, or the code that refuses."""
    told = registry.codec_of(messages.OffsetDeleteResponse, OFFSET_DELETE_VERSION).decode(answer)
    return refusal(ApiKey.OFFSET_DELETE, told.error_code)


def ask_group_bits(connection: Connection, group_ids: Sequence[str]) -> Promise[memoryview]:
    """Ask for the authorized operations on groups, existing or not; `group_bits` understands the answer."""
    request = messages.DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=True)
    body = registry.request(ApiKey.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION).encode(request)
    return connection.ask(ApiKey.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, body)


def group_bits(answer: memoryview) -> dict[str, tuple[int, int]]:
    """Group id -> (error code, bits); brokers answer in another order than asked."""
    described = registry.codec_of(messages.DescribeGroupsResponse, DESCRIBE_GROUPS_VERSION).decode(answer)
    return {group.group_id: (group.error_code, group.authorized_operations) for group in described.groups}
