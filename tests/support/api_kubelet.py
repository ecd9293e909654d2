"""A kubelet for a real control plane: runs the pods that the scheduler places on its node, and reports them.

Pods are processes on the small node (`small_kubelet`). Changed ConfigMaps and Secrets reach the running pods.
"""

from __future__ import annotations

import base64
import threading
import urllib.error
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.support.control_plane import PATCH, ControlPlane
from tests.support.node_network import NODE_IP, Node
from tests.support.small_kubelet import Cluster, Container, Pod

NODE = "node"
STEP_S = 0.2
CAPACITY = {"cpu": "64", "memory": "64Gi", "pods": "110"}
NOT_FOUND = 404


class ApiKubelet:
    """Loop over the pods of one node, in a thread."""

    def __init__(self, plane: ControlPlane, node: Node, images: Mapping[str, Sequence[str]]) -> None:
        """`images`: the command of each image."""
        self._plane, self._node, self._images = plane, node, images
        self.pods: dict[str, Pod] = {}
        """Every pod that was started, by its UID."""
        self._reported: dict[str, object] = {}
        self._terminated: set[str] = set()
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._register()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all pods. Raises what ended the loop before."""
        self._closing.set()
        self._thread.join()
        for pod in self.pods.values():
            pod.kill()
        if self._error is not None:
            raise self._error

    def _register(self) -> None:
        labels = {"kubernetes.io/hostname": NODE, "topology.kubernetes.io/zone": "zone"}
        self._plane.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "labels": labels}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": _now()}
        status = {"allocatable": CAPACITY, "capacity": CAPACITY, "conditions": [ready]}
        self._plane.request("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, PATCH)
        untainted = {"spec": {"taints": None}}  # otherwise the node controller does it
        self._plane.request("PATCH", f"/api/v1/nodes/{NODE}", untainted, "application/merge-patch+json")

    def _run(self) -> None:
        try:
            while not self._closing.wait(STEP_S):
                listed = self._plane.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={NODE}")["items"]
                objects = _Objects(self._plane)
                for item in listed:
                    self._keep(item, objects)
        except BaseException as error:  # reported by close
            self._error = error
            raise

    def _keep(self, item: dict[str, Any], objects: _Objects) -> None:
        uid, metadata = item["metadata"]["uid"], item["metadata"]
        if uid not in self.pods:
            self.pods[uid] = self._started(item, objects)
        pod = self.pods[uid]
        if metadata.get("deletionTimestamp") and uid not in self._terminated:
            self._terminated.add(uid)
            pod.delete(metadata.get("deletionGracePeriodSeconds", 0))
        _refresh(pod, metadata["namespace"], objects)
        self._report(pod, metadata)
        if uid in self._terminated and pod.over.is_set():
            self._remove(metadata)

    def _started(self, item: dict[str, Any], objects: _Objects) -> Pod:
        metadata, spec = item["metadata"], _without_projected(item["spec"])
        namespace = metadata["namespace"]
        cluster = Cluster(self._images, objects.of("configmaps", namespace), objects.of("secrets", namespace))
        pod = Pod(self._node, cluster, metadata["name"], {"spec": spec})
        if subdomain := spec.get("subdomain"):
            self._node.add_name(f"{spec['hostname']}.{subdomain}.{namespace}.svc.cluster.local", pod.address)
        return pod.start()

    def _report(self, pod: Pod, metadata: Mapping[str, Any]) -> None:
        """Send the status of a pod if it has changed."""
        state = _state(pod)
        if self._reported.get(metadata["uid"]) == state:
            return
        self._reported[metadata["uid"]] = state
        flag = "True" if state["is_ready"] else "False"
        conditions = [
            {"type": name, "status": flag, "lastTransitionTime": _now()} for name in ("Ready", "ContainersReady")
        ]
        status = {
            "phase": state["phase"],
            "hostIP": NODE_IP,
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "conditions": conditions,
            "containerStatuses": state["containers"],
            "initContainerStatuses": state["inits"],
        }
        self._request("PATCH", f"{_path(metadata)}/status", {"status": status}, PATCH)

    def _remove(self, metadata: Mapping[str, Any]) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        self._request("DELETE", _path(metadata), options)

    def _request(self, method: str, path: str, body: object, kind: str = "application/json") -> None:
        try:
            self._plane.request(method, path, body, kind)
        except urllib.error.HTTPError as error:
            if error.code != NOT_FOUND:  # removed meanwhile
                raise


class _Objects:
    """ConfigMaps and Secrets of the namespaces, read once for each step."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._read: dict[tuple[str, str], dict[str, dict[str, str]]] = {}

    def of(self, kind: str, namespace: str) -> dict[str, dict[str, str]]:
        """Return the contents by name."""
        if (kind, namespace) not in self._read:
            items = self._plane.request("GET", f"/api/v1/namespaces/{namespace}/{kind}")["items"]
            self._read[kind, namespace] = {
                item["metadata"]["name"]: _text(item.get("data") or {}, is_encoded=kind == "secrets") for item in items
            }
        return self._read[kind, namespace]


def _text(data: Mapping[str, str], *, is_encoded: bool) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() if is_encoded else value for key, value in data.items()}


def _refresh(pod: Pod, namespace: str, objects: _Objects) -> None:
    """Swap the files of volumes whose object has changed."""
    if pod.over.is_set():
        return
    config_maps, secrets = objects.of("configmaps", namespace), objects.of("secrets", namespace)
    for volume in pod.spec.get("volumes", []):
        if "configMap" in volume:
            pod_objects, name, now = pod.cluster.config_maps, volume["configMap"]["name"], config_maps
        elif "secret" in volume:
            pod_objects, name, now = pod.cluster.secrets, volume["secret"]["secretName"], secrets
        else:
            continue
        if name in now and now[name] != pod_objects[name]:
            pod_objects[name] = now[name]
            pod.volumes[volume["name"]].write(now[name])


def _without_projected(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod without the tokens that the API server adds: there is nothing that reads them."""
    projected = {volume["name"] for volume in spec.get("volumes", []) if "projected" in volume}
    reduced_spec = {
        **spec,
        "volumes": [volume for volume in spec.get("volumes", []) if volume["name"] not in projected],
    }
    for kind in ("initContainers", "containers"):
        reduced_spec[kind] = [
            {**each, "volumeMounts": [m for m in each.get("volumeMounts", []) if m["name"] not in projected]}
            for each in spec.get(kind, [])
        ]
    return reduced_spec


def _state(pod: Pod) -> dict[str, Any]:
    has_started = any(each.starts for each in pod.containers)
    return {
        "phase": pod.phase if has_started else "Pending",
        "is_ready": pod.is_ready,
        "containers": [_container(each) for each in pod.containers],
        "inits": [_container(each) for each in pod.inits],
    }


def _container(container: Container) -> dict[str, Any]:
    if not container.starts:
        state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
    elif container.ended.is_set():
        state = {"terminated": {"exitCode": container.status or 0}}
    else:
        state = {"running": {}}
    return {
        "name": container.name,
        "image": container.spec["image"],
        "imageID": "",
        "ready": container.is_ready,
        "started": container.is_started,
        "restartCount": max(0, container.starts - 1),
        "state": state,
    }


def _path(metadata: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
