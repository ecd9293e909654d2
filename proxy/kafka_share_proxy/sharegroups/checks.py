"""`check` for share groups: which side serves them, where their state is, and what the brokers hold of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import connection
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.brokers.queries import Resource, about_settings
from kafka_share_proxy.feature import state_rights
from kafka_share_proxy.feature.checks import CheckReport
from kafka_share_proxy.feature.state_rights import StateRights
from kafka_share_proxy.sharegroups import serving_side
from kafka_share_proxy.sharegroups.dead_letters import letter_checks
from kafka_share_proxy.sharegroups.dead_letters.letter_checks import LetterFindings
from kafka_share_proxy.sharegroups.model.broker_limits import broker_names
from kafka_share_proxy.sharegroups.settings import ShareGroups
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE
from kafka_share_proxy.wire.acl_operations import AclOperation
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import Address

GROUPS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFindings:
    """Responses of the cluster about share groups."""

    groups: tuple[str, ...] = ()
    """Share groups on the brokers, as far as the proxy's identity may see them."""
    sees_all_groups: bool = True
    """True if the proxy's identity may DESCRIBE the cluster, so that ListGroups returns all groups."""
    rights: StateRights | None = None
    """Rights of the identity for share state; None if no server has responded."""
    letters: LetterFindings = field(default_factory=LetterFindings)
    may_act_on_cluster: bool = True
    """True if the identity has CLUSTER_ACTION, which a take-back needs."""
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    """`group.share.*` of a broker, as far as the identity may see them."""


class ShareGroupCheck:
    """Part of `check` about share groups. See FeatureCheck."""

    name = "share groups"

    def __init__(self, settings: ShareGroups) -> None:
        self._settings = settings

    async def query(self, own: ClusterClient, cluster: ClusterSnapshot) -> ShareFindings:
        bits = await _cluster_rights(own, cluster.brokers.values())
        return ShareFindings(
            sees_all_groups=bool(bits & AclOperation.DESCRIBE.bit),
            groups=await _groups(own, cluster),
            rights=await _rights(own),
            letters=await letter_checks.query(own, self._settings.dead_letters),
            may_act_on_cluster=bool(bits & AclOperation.CLUSTER_ACTION.bit),
            broker_settings=await _broker_settings(own, cluster),
        )

    def report(self, findings: ShareFindings | None, cluster: ClusterSnapshot) -> CheckReport:
        local, reason = serving_side.decide(self._settings, cluster)
        is_kept = serving_side.keeps_state(self._settings, local=local)
        rights = None if findings is None else findings.rights
        missing = tuple(state_rights.obstacles(rights, SHARE_STATE)) if is_kept else ()
        letters = findings.letters if is_kept and findings is not None else LetterFindings()
        remarks = (*_remarks(self._settings, findings or ShareFindings(), cluster, local), *letters.remarks)
        return CheckReport(
            line=self._line(cluster, local, reason, is_off=bool(missing)),
            obstacles=missing if rights is not None else (),
            remarks=remarks if rights is not None else (*remarks, *missing),
            risks=(*(rights.risks if is_kept and rights is not None else ()), *letters.risks),
        )

    def _line(self, cluster: ClusterSnapshot, local: bool, reason: str, *, is_off: bool) -> str:
        by_group = local and serving_side.rules(self._settings, cluster).are_mixed
        if is_off:
            off = "those of the proxy will be off" if by_group else "will be off"
            return f"Share groups: {off}, for the reasons above ({reason})."
        where = "all served by the proxy" if local else "all served by the brokers"
        return f"Share groups: {'served by the proxy or the brokers, by group' if by_group else where} ({reason})."


async def _rights(own: ClusterClient) -> StateRights | None:
    try:
        return await state_rights.query_rights(own, SHARE_STATE)
    except ProxyError:  # a server without a response is reported among the others
        return None


async def _groups(own: ClusterClient, cluster: ClusterSnapshot) -> tuple[str, ...]:
    """List the share groups of every coordinator. v5 of ListGroups has group types (KIP-848)."""
    names: set[str] = set()
    query = messages.ListGroupsRequest(states_filter=[], types_filter=["share"])
    for node_id, address in cluster.brokers.items():
        versions = cluster.versions.get(node_id)
        if versions is None or versions.ranges.get(ApiKey.LIST_GROUPS, (0, 0))[1] < 5:
            continue
        try:
            async with connection(address, own.settings) as opened:
                response = await opened.send_request(ApiKey.LIST_GROUPS, query)
        except ProxyError:
            continue  # it is reported among the brokers that could not be queried
        if response.error_code == ErrorCode.NONE:
            names.update(group.group_id for group in response.groups or ())
    return tuple(sorted(names))


async def _cluster_rights(own: ClusterClient, brokers: Iterable[Address]) -> int:
    """Return the operations on the cluster that the identity is allowed, as bits. All without an authorizer.

    Brokers without DescribeCluster are skipped; without any response the result is all bits.
    """
    query = messages.DescribeClusterRequest(include_cluster_authorized_operations=True)
    for address in brokers:
        try:
            async with connection(address, own.settings) as opened:
                response = await opened.send_request(ApiKey.DESCRIBE_CLUSTER, query)
        except ProxyError:
            continue
        return response.cluster_authorized_operations
    return -1


async def _broker_settings(own: ClusterClient, cluster: ClusterSnapshot) -> dict[str, str]:
    """Return the `group.share.*` settings of the first broker that responds; none without the right to see them."""
    for node_id, address in sorted(cluster.brokers.items()):
        query = about_settings(Resource.BROKER, str(node_id), sorted(broker_names()))
        try:
            async with connection(address, own.settings) as opened:
                response = await opened.send_request(ApiKey.DESCRIBE_CONFIGS, query)
        except ProxyError:
            continue
        return {each.name: each.value for each in response.results[0].configs if each.value is not None}
    return {}


def _remarks(settings: ShareGroups, findings: ShareFindings, cluster: ClusterSnapshot, local: bool) -> Iterator[str]:
    if local and not findings.sees_all_groups:
        yield (
            "the proxy's own identity may not DESCRIBE the cluster, so share groups the brokers hold may be overlooked"
        )
    if local and findings.groups:
        shown = ", ".join(findings.groups[:GROUPS_SHOWN])
        yield f"the brokers hold share groups of their own, which clients will not see: {shown}"
    if local:
        yield from _about_moves(settings, findings, cluster)
    if not local and settings.serve == "upstream" and not serving_side.rules(settings, cluster).native:
        yield "share_groups.serve is upstream, but not every broker serves share groups with renewal"


def _about_moves(settings: ShareGroups, findings: ShareFindings, cluster: ClusterSnapshot) -> Iterator[str]:
    """Yield what concerns `groups GROUP hand-over` and `take-back`, where there are brokers to move a group to."""
    lacking, brokers = serving_side.lacking(cluster), len(cluster.versions)
    if lacking:
        if len(lacking) < brokers or any("share.version" in each for each in lacking):
            yield f"groups GROUP hand-over waits: {'; '.join(lacking)}"
        return
    if not findings.may_act_on_cluster:
        yield (
            "the proxy's own identity lacks CLUSTER_ACTION on the cluster, by which groups GROUP take-back reads the "
            "state of a group"
        )
    own_settings = {name: str(settings.limits.value(name)) for name in broker_names()}
    broker_settings = findings.broker_settings
    differing = [
        f"{name} {broker_settings[name]} (here {own_settings[name]})"
        for name in own_settings
        if broker_settings.get(name, own_settings[name]) != own_settings[name]
    ]
    if differing:
        yield f"after a hand-over the brokers' own settings apply: {', '.join(differing)}"
    if settings.renewal_limits:
        yield "share_groups.renewal_limits do not apply after a hand-over: brokers have no such limits"
