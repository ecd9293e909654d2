"""Replicas of a StatefulSet or a Deployment on the small node: pods by ordinal, names that resolve, updates."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tests.support.node_network import Node
from tests.support.raw import until
from tests.support.small_kubelet import Cluster, Pod, described

READY_S = 120.0
END_S = 120.0
ENDPOINTS_S = 1.0
"""Seconds between two looks at which pods are ready: the delay of a cluster's load balancer."""


class Replicas:
    """Pods of the template of a manifest."""

    def __init__(self, node: Node, cluster: Cluster, manifest: Mapping[str, Any], domain: str) -> None:
        """`domain`: of the headless Service, in which each pod has its name."""
        self._node, self._cluster, self._domain = node, cluster, domain
        self._name, self._spec = manifest["metadata"]["name"], manifest["spec"]
        self.pods: dict[int, Pod] = {}
        self.former: list[Pod] = []
        """Pods that an update has ended."""
        self._ready: list[str] = []
        self._read_at = 0.0

    def start(self) -> None:
        """Start all replicas together, and wait until they are ready."""
        for ordinal in range(self._spec["replicas"]):
            self._start_one(ordinal)
        for pod in self.pods.values():
            self._wait_ready(pod)

    def update(self) -> None:
        """Replace each pod of a StatefulSet, the highest ordinal first, minReadySeconds apart."""
        for ordinal in sorted(self.pods, reverse=True):
            pod = self.pods[ordinal]
            pod.delete()
            pod.wait(END_S)
            self.former.append(pod)
            self._start_one(ordinal)
            self._wait_ready(self.pods[ordinal])
            time.sleep(self._spec.get("minReadySeconds", 0))

    def surge(self) -> None:
        """Replace the only pod of a Deployment with maxSurge 1: the new one is ready before the old one is ended."""
        (before,) = self.pods
        self._start_one(before + 1)
        self._wait_ready(self.pods[before + 1])
        self.pods[before].delete()
        self.pods[before].wait(END_S)
        self.former.append(self.pods.pop(before))

    def endpoints(self) -> list[str]:
        """Return the addresses of the ready pods, as they were up to ENDPOINTS_S ago."""
        if time.monotonic() > self._read_at + ENDPOINTS_S:
            self._ready = [pod.address for pod in list(self.pods.values()) if pod.is_ready]
            self._read_at = time.monotonic()
        return self._ready

    def kill(self) -> None:
        for pod in list(self.pods.values()):
            pod.kill()

    def described(self) -> str:
        """Return the events and logs of all pods."""
        return "\n".join(f"=== {pod.name}\n{described(pod)}" for pod in (*self.former, *self.pods.values()))

    def _start_one(self, ordinal: int) -> None:
        name = f"{self._name}-{ordinal}"
        pod = Pod(self._node, self._cluster, name, self._spec["template"])
        self._node.add_name(f"{name}.{self._domain}", pod.address)
        self.pods[ordinal] = pod.start()

    def _wait_ready(self, pod: Pod) -> None:
        until(lambda: pod.is_ready, f"{pod.name} to be ready", READY_S)
