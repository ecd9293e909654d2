"""Views: topics that show slices of the partitions of another topic (views/README.md)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.topic_configs import TopicConfigs
from kafka_share_proxy.conformance.target.topics import PARTITIONS_MAX, HostedTopic
from kafka_share_proxy.views.model.base_comparison import cut_of
from kafka_share_proxy.views.model.names import BadViewName, parse
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

PLANS_MAX = 1_000
"""Maximum number of plans of a cluster."""


def store_plan(cluster: TargetCluster, plan: Plan) -> None:
    """Store the plan of views `__view.pPLAN.BASE`. Raises ValueError if there is another one with its id."""
    known = cluster.view_plans.setdefault(plan.plan_id, plan)
    if known != plan:
        raise ValueError(f"plan {plan.plan_id!r} has other ranges, and a plan never changes: choose another id")
    if len(cluster.view_plans) > PLANS_MAX:
        del cluster.view_plans[plan.plan_id]
        raise ValueError(f"a cluster has at most {PLANS_MAX} plans")


def find_view(cluster: TargetCluster, name: str) -> HostedTopic | ErrorCode | None:
    """Return the topic of a view. Its id is zero if it is not created. None if the name is not a view's."""
    try:
        parsed = parse(name)
    except BadViewName:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if parsed is None:
        return None
    known, base = cluster.topics.with_name(name), cluster.topics.with_name(parsed.base)
    if known is not None:
        return known
    plan = cluster.view_plans.get(parsed.plan or "")
    if parsed.plan is not None and plan is None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if base is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cut = cut_of(parsed, plan)
    if len(base.partitions) * cut.slots > PARTITIONS_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    view = HostedTopic(name, ZERO_UUID, TopicConfigs({"max.message.bytes": "0"}), [], base=base, cut=cut)
    view.add_slots()
    return view


def create_view(cluster: TargetCluster, name: str) -> HostedTopic | ErrorCode | None:
    """Return the topic of a view, which is created if it does not exist. None if the name is not a view's."""
    view = find_view(cluster, name)
    if isinstance(view, HostedTopic) and view.topic_id == ZERO_UUID:
        return cluster.add_view(view) or ErrorCode.POLICY_VIOLATION
    return view


def create_views(cluster: TargetCluster, names: Iterable[str]) -> None:
    """Create the views among these topics."""
    for name in names:
        create_view(cluster, name)
