"""Groups that read views, and the distribution of slots by their assignor, for `views list`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_share_proxy.brokers.cluster_connection import ClusterConnection
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.consumer.groups.group_protocol import read_assignment
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost
from kafka_share_proxy.wire.key_text import printable
from kafka_share_proxy.wire.values import Address

DESCRIBE_GROUPS_VERSION = 5
GROUPS_MAX = 1_000
"""Maximum number of groups of one broker that are described."""
GROUPS_PER_REQUEST = 100
ADVICE = "use cooperative-sticky, roundrobin, or group.protocol=consumer with the assignor uniform"

Cells = Mapping[str, Sequence[int]]
"""Member id -> its partitions of one view."""


@dataclass(frozen=True, slots=True)
class GroupOnView:
    """A group whose members have partitions of a view."""

    group: str
    view: str
    assignor: str
    cells: Cells

    def line(self, slots: int) -> str:
        """Return a line for people. `slots`: partitions of the view per partition of its base."""
        most, mean = max(map(len, self.cells.values())), sum(map(len, self.cells.values())) / len(self.cells)
        line = (
            f"group {printable(self.group)} reads {self.view}: assignor {printable(self.assignor) or 'unknown'}, "
            f"{len(self.cells)} members, at most {most} partitions each ({most / mean:.2f} x the mean)"
        )
        if has_whole_bases(self.cells, slots):
            line += f"; members have whole base partitions, which no plan balances: {ADVICE}"
        return line


def has_whole_bases(cells: Cells, slots: int) -> bool:
    """True if several members have partitions, and each has all slots of its base partitions."""
    if len(cells) < 2 or slots < 2:
        return False
    for mine in map(set, cells.values()):
        bases = {number // slots for number in mine}
        if any(base * slots + slot not in mine for base in bases for slot in range(slots)):
            return False
    return True


async def groups_on_views(nodes: OpenNodes, brokers: Iterable[Address]) -> list[GroupOnView]:
    """Return the groups of all brokers that read views, as far as the proxy's identity may describe them.

    A broker lists the groups that it coordinates. One that cannot be reached is left out.
    """
    groups: list[GroupOnView] = []
    for broker in brokers:
        try:
            async with nodes.connection(broker) as opened:
                groups += await _of_broker(opened)
        except UpstreamLost:
            continue
    return sorted(groups, key=lambda each: (each.view, each.group))


async def _of_broker(opened: ClusterConnection) -> list[GroupOnView]:
    listing = messages.ListGroupsRequest(states_filter=[], types_filter=[])
    response = await opened.send_request(ApiKey.LIST_GROUPS, listing)
    names = [each.group_id for each in response.groups or () if each.protocol_type == "consumer"][:GROUPS_MAX]
    groups: list[GroupOnView] = []
    for start in range(0, len(names), GROUPS_PER_REQUEST):
        some = names[start : start + GROUPS_PER_REQUEST]
        classic = messages.DescribeGroupsRequest(groups=some)
        for group in (
            await opened.send_request(ApiKey.DESCRIBE_GROUPS, classic, version=DESCRIBE_GROUPS_VERSION)
        ).groups:
            groups += _classic(group)
        if ApiKey.CONSUMER_GROUP_DESCRIBE in opened.versions.ranges:
            modern = messages.ConsumerGroupDescribeRequest(group_ids=some)
            for each in (await opened.send_request(ApiKey.CONSUMER_GROUP_DESCRIBE, modern)).groups:
                groups += _modern(each)
    return groups


def _classic(group: Any) -> list[GroupOnView]:
    """Read a described group of the classic protocol."""
    cells: dict[str, dict[str, list[int]]] = {}
    for member in group.members if group.error_code == ErrorCode.NONE else ():
        try:
            partitions = read_assignment(bytes(member.member_assignment)).partitions
        except ProxyError:
            continue
        for topic, number in partitions:
            if is_view(topic):
                cells.setdefault(topic, {}).setdefault(member.member_id, []).append(number)
    return [GroupOnView(group.group_id, view, group.protocol_data, mine) for view, mine in cells.items()]


def _modern(group: Any) -> list[GroupOnView]:
    """Read a described group of KIP-848."""
    cells: dict[str, dict[str, list[int]]] = {}
    for member in group.members if group.error_code == ErrorCode.NONE else ():
        for topic in member.assignment.topic_partitions:
            if is_view(topic.topic_name):
                cells.setdefault(topic.topic_name, {})[member.member_id] = list(topic.partitions)
    return [GroupOnView(group.group_id, view, group.assignor_name, mine) for view, mine in cells.items()]
