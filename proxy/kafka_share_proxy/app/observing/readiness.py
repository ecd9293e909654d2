"""Readiness probes of a running proxy: forwarding, share groups, individual commits and views, each separately.

A load balancer should use the one for forwarding: a proxy that waits to take over share groups from another one serves
everything else. A dead broker does not make the proxy unready, because clients of the others are served, and no other
proxy would reach it either. It is listed in the details.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka_share_proxy.app.serving.composition import ServingParts
from kafka_share_proxy.brokers.cluster_watch import ClusterWatch
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS
from kafka_share_proxy.sharegroups.state.state_records import TOPIC

Body = dict[str, Any]
ProbeResult = tuple[bool, Mapping[str, object]]
"""True if ready, and the details."""


class Readiness:
    """Readiness probes. `reasons` pass by themselves or when the cluster recovers; `missing` needs an operator."""

    def __init__(
        self, watch: ClusterWatch, parts: Callable[[], ServingParts | None], stopping: Callable[[], bool]
    ) -> None:
        """Set up the probes. `parts` returns None until the cluster has responded."""
        self._watch = watch
        self._parts = parts
        self._stopping = stopping

    def probes(self) -> Mapping[bytes, Callable[[], ProbeResult]]:
        """Return the probe for each path."""
        return {
            b"/readyz": self.forwarding,
            b"/readyz/share-groups": self.share_groups,
            b"/readyz/commits": self.commits,
            b"/readyz/views": self.views,
        }

    def forwarding(self) -> ProbeResult:
        """Report ready if clients are admitted and the last query reached the cluster."""
        parts, reasons = self._parts(), self._reasons()
        missing = self._missing_upstream()
        also: Body = {}
        if parts is not None:
            also = parts.state() | {"unreachable": self._unreachable(parts)}
            also["share_groups_ready"], also["views_ready"] = self.share_groups()[0], self.views()[0]
            also["commits_ready"] = self.commits()[0]
            missing += _missing_of_home(parts) + _missing_of_views(parts)
        return not reasons, _body(not reasons, reasons, missing) | also

    def share_groups(self) -> ProbeResult:
        """Report ready if share groups are served: their state is loaded here, or the brokers serve them."""
        parts, reasons = self._parts(), self._reasons()
        missing: list[str] = []
        also: Body = {}
        if parts is not None:
            also = {"share_groups": parts.where} | ({} if parts.home is None else parts.home.state())
            if parts.home is not None:
                reasons += filter(None, [parts.home.why_not(TOPIC)])
                missing += filter(None, [parts.home.missing(TOPIC)])
        ready = not reasons and not missing
        return ready, _body(ready, reasons, missing) | also

    def commits(self) -> ProbeResult:
        """Report ready if individual commits are served: ranges are loaded, and the groups with ranges are known."""
        parts, reasons = self._parts(), self._reasons()
        if parts is None:
            return False, _body(False, reasons, [])
        if parts.commits is None:
            return False, _body(False, [*reasons, "individual commits are switched off (commits.serve)"], [])
        missing: list[str] = []
        if parts.commits.is_stored and parts.home is not None:
            reasons += filter(None, [parts.home.why_not(INDIVIDUAL_COMMITS.topic), parts.commits.why_not])
            missing += filter(None, [parts.home.missing(INDIVIDUAL_COMMITS.topic)])
        ready = not reasons and not missing
        return ready, _body(ready, reasons, missing) | {"commits": parts.commits.state()}

    def views(self) -> ProbeResult:
        """Report ready if views are served. Without rights of the proxy's own identity, plans are unknown
        (`missing`).
        """
        parts, reasons = self._parts(), self._reasons()
        if parts is None:
            return False, _body(False, reasons, [])
        if parts.views is None:
            return False, _body(False, [*reasons, "views are switched off (views.serve)"], [])
        return not reasons, _body(not reasons, reasons, _missing_of_views(parts)) | {"views": parts.views.state()}

    def _reasons(self) -> list[str]:
        watch, reasons = self._watch, []
        if self._stopping():
            reasons.append("stopping")
        if not watch.reachable:
            reasons.append(f"upstream is not reachable: {watch.trouble}")
        elif watch.refused:
            reasons.append(watch.trouble)
        if self._parts() is None and watch.reachable:
            reasons.append("waiting for every broker to tell its versions")
        return reasons

    def _missing_upstream(self) -> list[str]:
        watch = self._watch
        return [watch.trouble] if watch.reachable and watch.trouble and not watch.refused else []

    def _unreachable(self, parts: ServingParts) -> dict[str, str]:
        silent = {node_id: why for node_id, why in self._watch.silent.items() if node_id >= 0}
        return {str(node_id): why for node_id, why in sorted((parts.gone() | silent).items())}


def _missing_of_home(parts: ServingParts) -> list[str]:
    return [parts.home.off] if parts.home is not None and parts.home.off else []


def _missing_of_views(parts: ServingParts) -> list[str]:
    return [parts.views.missing] if parts.views is not None and parts.views.missing else []


def _body(ready: bool, reasons: list[str], missing: list[str]) -> Body:
    return {"ready": ready, "reasons": reasons} | ({"missing": missing} if missing else {})
