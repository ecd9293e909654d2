"""Readiness probes of a running proxy: forwarding and every feature, each separately.

A load balancer should use the one for forwarding: a proxy that waits to take over share groups from another one serves
everything else. A dead broker, listed in the details, does not make the proxy unready: clients of the others are
served, and no other proxy would reach it either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from kafka_share_proxy.app.serving.composition import ServingParts
from kafka_share_proxy.app.serving.features import FEATURES
from kafka_share_proxy.brokers.cluster_watch import ClusterWatch
from kafka_share_proxy.feature.feature import Probe

Body = dict[str, Any]
PATHS = tuple(kind.probe_path for kind in FEATURES)
ProbeResult = tuple[bool, Mapping[str, object]]
"""True if ready, and the details."""


class Readiness:
    """Readiness probes. `reasons` pass by themselves or when the cluster recovers; `missing` needs an operator."""

    def __init__(
        self,
        watch: ClusterWatch,
        parts: Callable[[], ServingParts | None],
        stopping: Callable[[], bool],
        paths: Iterable[str] = PATHS,
    ) -> None:
        """Set up the probes. `parts` returns None until the cluster has responded. `paths`: of the features' probes."""
        self._paths = tuple(paths)
        self._watch = watch
        self._parts = parts
        self._stopping = stopping

    def probes(self) -> Mapping[bytes, Callable[[], ProbeResult]]:
        """Return the probe for each path."""
        of_features = {f"/readyz/{path}".encode(): partial(self.feature, path) for path in self._paths}
        return {b"/readyz": self.forwarding} | of_features

    def forwarding(self) -> ProbeResult:
        parts, reasons = self._parts(), self._reasons()
        missing = self._missing_upstream()
        also: Body = {}
        if parts is not None:
            also = parts.state() | {"unreachable": self._unreachable(parts)}
            for feature in parts.features:
                also[f"{feature.probe.path.replace('-', '_')}_ready"] = self._of(parts, feature.probe)[0]
            missing += _missing_of_home(parts)
            missing += [lacks for feature in parts.features if (lacks := feature.probe.lacks())]
        return not reasons, _body(not reasons, reasons, missing) | also

    def feature(self, path: str) -> ProbeResult:
        """Report ready if the feature is loaded here, or the brokers serve it."""
        parts = self._parts()
        if parts is not None:
            for feature in parts.features:
                if feature.probe.path == path:
                    return self._of(parts, feature.probe)
        return False, _body(False, self._reasons(), [])

    def _of(self, parts: ServingParts, probe: Probe) -> ProbeResult:
        reasons, home = self._reasons(), parts.home
        if probe.off:
            return False, _body(False, [*reasons, probe.off], [])
        needed = ""
        if probe.topic and home is not None:
            reasons += filter(None, [home.why_not(probe.topic)])
            needed = home.missing(probe.topic)
        reasons += filter(None, [probe.why_not()])
        ready = not reasons and not needed
        missing = [text for text in (needed, probe.lacks()) if text]
        also = home.state() if probe.is_first and home is not None else {}
        return ready, _body(ready, reasons, missing) | probe.details() | also

    def _reasons(self) -> list[str]:
        watch, reasons = self._watch, []
        if self._stopping():
            reasons.append("stopping")
        if not watch.reachable:
            reasons.append(f"upstream is not reachable: {watch.trouble}")
        elif watch.refused:
            reasons.append(watch.trouble)
        if self._parts() is None and watch.reachable:
            reasons.append("waiting for every broker to report its versions")
        return reasons

    def _missing_upstream(self) -> list[str]:
        watch = self._watch
        return [watch.trouble] if watch.reachable and watch.trouble and not watch.refused else []

    def _unreachable(self, parts: ServingParts) -> dict[str, str]:
        silent = {node_id: why for node_id, why in self._watch.silent.items() if node_id >= 0}
        return {str(node_id): why for node_id, why in sorted((parts.vanished() | silent).items())}


def _missing_of_home(parts: ServingParts) -> list[str]:
    return [parts.home.off] if parts.home is not None and parts.home.off else []


def _body(ready: bool, reasons: list[str], missing: list[str]) -> Body:
    return {"ready": ready, "reasons": reasons} | ({"missing": missing} if missing else {})
