"""What a connection's principal may do, as its own upstream connection says (decision 15).

The proxy does not know principals. It asks the broker on the client's connection and believes the answer, yes or no,
for a bounded time on that connection only. Nothing here changes anything upstream:

- READ on a group: Heartbeat v4 of a member that cannot exist; 30 = no, anything else = yes. Any broker judges the right
  before it looks whether it is the coordinator.
- DESCRIBE on a group: FindCoordinator v4; 30 for the key = no.
- DELETE on a group: OffsetDelete v0 without topics; 30 = no. Never remembered: deletions are rare.
- Rights on topics: the bits of Metadata v8+ (`leadership`), or what a Fetch or ListOffsets said about the topic.
- The bits that an answer shows: DescribeGroups v5 (v6 gives none for ids that are no classic group); 16 is passed on.

A connection that has not authenticated is refused by its broker at the first of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from itertools import islice
from typing import Any

from proxy.apis.ports import Connection
from proxy.apis.promise import Promise
from proxy.errors import ErrorCode
from proxy.wire import registry

HEARTBEAT, FIND_COORDINATOR, DESCRIBE_GROUPS, OFFSET_DELETE = 12, 10, 15, 47
HEARTBEAT_VERSION, FIND_COORDINATOR_VERSION, DESCRIBE_GROUPS_VERSION, OFFSET_DELETE_VERSION = 4, 4, 5, 0

READ_BIT, DESCRIBE_BIT = 1 << 3, 1 << 8
"""Operation codes as bits of an authorized-operations field (org.apache.kafka.common.acl.AclOperation)."""

NO_BITS = -2147483648
"""An authorized-operations field that says nothing."""

PROBE_MEMBER = "kafka-share-proxy-rights-probe"
"""A member id nobody has."""

VERDICTS_MAX = 10_000
"""Rights remembered per connection; past it the older half is forgotten, and asked again."""


class Right(IntEnum):
    """What may be asked. An IntEnum for its hash, which is looked up with every request."""

    READ_GROUP = auto()
    DESCRIBE_GROUP = auto()
    DESCRIBE_CLUSTER = auto()
    READ_TOPIC = auto()
    DESCRIBE_TOPIC = auto()


@dataclass(slots=True)
class Rights:
    """What is remembered for one connection. Groups and topics by name."""

    verdicts: dict[tuple[Right, str], tuple[bool, float]] = field(default_factory=dict)
    """(allowed, asked at)"""

    def verdict(self, right: Right, name: str, now: float, cache_s: float) -> bool | None:
        """Allowed, refused, or None = ask."""
        remembered = self.verdicts.get((right, name))
        if remembered is None or now - remembered[1] > cache_s:
            return None
        return remembered[0]

    def remember(self, right: Right, name: str, allowed: bool, now: float) -> None:
        """The broker has said so, now."""
        self.verdicts.pop((right, name), None)
        if len(self.verdicts) >= VERDICTS_MAX:
            for oldest in list(islice(self.verdicts, VERDICTS_MAX // 2)):
                del self.verdicts[oldest]
        self.verdicts[right, name] = (allowed, now)


def rights_of(connection: Connection) -> Rights:
    """The rights remembered for this connection."""
    rights: Rights | None = connection.memory.get("rights")
    if rights is None:
        rights = connection.memory["rights"] = Rights()
    return rights


def ask_read_group(connection: Connection, group_id: str) -> Promise[memoryview]:
    """Send the question; `tell_read_group` understands the answer."""
    request = registry.message("HeartbeatRequest")(group_id=group_id, generation_id=0, member_id=PROBE_MEMBER)
    return connection.ask(HEARTBEAT, HEARTBEAT_VERSION, registry.request(HEARTBEAT, HEARTBEAT_VERSION).encode(request))


def tell_read_group(connection: Connection, group_id: str, answer: memoryview, now: float) -> bool:
    """Remember and give what the answer to `ask_read_group` says."""
    code = registry.response(HEARTBEAT, HEARTBEAT_VERSION).decode(answer).error_code
    allowed = code != ErrorCode.GROUP_AUTHORIZATION_FAILED
    rights_of(connection).remember(Right.READ_GROUP, group_id, allowed, now)
    return bool(allowed)


def ask_describe_groups(connection: Connection, group_ids: Sequence[str]) -> Promise[memoryview]:
    """Send the question about DESCRIBE on groups; `tell_describe_groups` understands the answer."""
    request = registry.message("FindCoordinatorRequest")(key_type=0, coordinator_keys=list(group_ids))
    body = registry.request(FIND_COORDINATOR, FIND_COORDINATOR_VERSION).encode(request)
    return connection.ask(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body)


def tell_describe_groups(connection: Connection, answer: memoryview, now: float) -> dict[str, bool]:
    """Remember and give what the answer to `ask_describe_groups` says of each group.

    Whoever asked about many goes by what this gives: more than `VERDICTS_MAX` are not remembered.
    """
    rights = rights_of(connection)
    found = {}
    for entry in registry.response(FIND_COORDINATOR, FIND_COORDINATOR_VERSION).decode(answer).coordinators:
        found[entry.key] = allowed = bool(entry.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED)
        rights.remember(Right.DESCRIBE_GROUP, entry.key, allowed, now)
    return found


def ask_delete_group(connection: Connection, group_id: str) -> Promise[memoryview]:
    """Send the question about DELETE on a group; `tell_delete_group` understands the answer."""
    request = registry.message("OffsetDeleteRequest")(group_id=group_id, topics=[])
    body = registry.request(OFFSET_DELETE, OFFSET_DELETE_VERSION).encode(request)
    return connection.ask(OFFSET_DELETE, OFFSET_DELETE_VERSION, body)


def tell_delete_group(answer: memoryview) -> bool:
    """What the answer to `ask_delete_group` says."""
    code = registry.response(OFFSET_DELETE, OFFSET_DELETE_VERSION).decode(answer).error_code
    return bool(code != ErrorCode.GROUP_AUTHORIZATION_FAILED)


def ask_group_bits(connection: Connection, group_ids: Sequence[str]) -> Promise[memoryview]:
    """Ask for the authorized operations on groups, existing or not; `group_bits` understands the answer."""
    request = registry.message("DescribeGroupsRequest")(groups=list(group_ids), include_authorized_operations=True)
    body = registry.request(DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION).encode(request)
    return connection.ask(DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, body)


def group_bits(answer: memoryview) -> dict[str, tuple[int, int]]:
    """Group id -> (error code, bits); brokers answer in another order than asked."""
    described: Any = registry.response(DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION).decode(answer)
    return {group.group_id: (group.error_code, group.authorized_operations) for group in described.groups}
