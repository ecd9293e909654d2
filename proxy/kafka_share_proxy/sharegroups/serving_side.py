"""Decision at start which side serves share groups: the proxy, the brokers, or each some of them.

See sharegroups/README.md rule 1.
"""

from __future__ import annotations

from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.placement import ServeRule, ShareRules
from kafka_share_proxy.sharegroups.settings import ShareGroups
from kafka_share_proxy.sharegroups.state.state_records import TOPIC
from kafka_share_proxy.wire.errors import ErrorCode


def decide(settings: ShareGroups, snapshot: ClusterSnapshot) -> tuple[bool, str]:
    """Decide whether share groups, or some of them, are served here. Return the decision and its reason."""
    serve, placement = settings.serve, rules(settings, snapshot)
    if serve != "auto":
        if any(rule.serve == "local" for rule in placement.rules):
            return True, f"share_groups.serve is {serve}, share_groups.serve_by_group is local for some"
        return serve == "local", f"share_groups.serve is {serve}"
    if not placement.native:
        return True, "not every broker serves them"
    if any(rule.serve == "local" for rule in placement.rules):
        return True, "every broker serves them, share_groups.serve_by_group is local for some"
    if _has_share_state(snapshot):
        return True, "every broker serves them, and some have state here"
    return False, "every broker serves them"


def rules(settings: ShareGroups, snapshot: ClusterSnapshot) -> ShareRules:
    """Return the rules that place each group, from the settings and the brokers' features."""
    native = share_group_apis.is_native(versions.response for versions in snapshot.versions.values())
    by_group = [ServeRule(groups=rule.groups, serve=rule.serve) for rule in settings.serve_by_group]
    return ShareRules(native, (*by_group, ServeRule(serve=settings.serve)), "; ".join(lacking(snapshot)))


def lacking(snapshot: ClusterSnapshot) -> list[str]:
    """Return what brokers lack to serve share groups, one sentence each."""
    reasons = {node_id: share_group_apis.lacks(each.response) for node_id, each in sorted(snapshot.versions.items())}
    return [f"broker {node_id} {reason}" for node_id, reason in reasons.items() if reason]


def keeps_state(settings: ShareGroups, *, local: bool) -> bool:
    """Return True if share state is kept in a topic of the cluster."""
    return local and settings.state == "topic"


def _has_share_state(snapshot: ClusterSnapshot) -> bool:
    """Return True if the cluster has the topic with the state of share groups served by proxies."""
    return any(
        topic.name == TOPIC and topic.error_code == ErrorCode.NONE
        for metadata in snapshot.metadata
        for topic in metadata.topics or ()
    )
