"""A small kubelet: runs the pod of a manifest as processes, in the order and with the signals of Kubernetes.

What it does as the kubelet does (kubernetes/kubernetes, pkg/kubelet):
- init containers one after the other; one with `restartPolicy: Always` (a sidecar, KEP-753) has started when its
  startupProbe has succeeded, and is restarted whenever it ends; the containers start after all of them
- probes: httpGet at the address of the pod; the startupProbe before the others; a failed liveness or startup probe
  restarts the container, a failed readiness probe makes the pod unready
- the end (kuberuntime_container.go, kuberuntime_termination_order.go): preStop hooks of all containers at the same
  time; then each container waits for its turn, sidecars after all containers and in reverse order; SIGTERM; SIGKILL
  when the grace period is over, from which preStop and the wait are taken, but never before 2 s
- a pod with restartPolicy Never or OnFailure has ended when its containers have, and then its sidecars are ended
- volumes by symbolic links (`MountedFiles`), environment with fieldRef, secretKeyRef and $(NAME), service links

Users, a read-only root and resources are not enforced here: tests/long/kubernetes_image.py runs the image with them.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_share_proxy.localkafka.children import Child

from tests.support.mounted_files import MountedFiles
from tests.support.node_network import Node

GRACE_DEFAULT_S = 30.0
GRACE_MIN_S = 2.0
"""minimumGracePeriodInSeconds: every container has this long after SIGTERM."""
STEP_S = 0.02
RESTART_S = 0.2
"""Seconds between two starts of a container; the kubelet waits 10 s and longer."""
SETUP = """
set -e
mount -t overlay overlay -o lowerdir=/etc,upperdir="$1/upper",workdir="$1/work" /etc
mount --bind "$2" /etc/hosts
shift 2
while [ "$1" != -- ]; do mkdir -p "$2"; mount --bind "$1" "$2"; mount -o remount,bind,ro "$2"; shift 2; done
shift
exec "$@"
"""
"""Script that mounts folders (pairs of source and target, then --) and replaces itself by the command."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a container."""

    at: float
    container: str
    kind: str


@dataclass
class Cluster:
    """Objects that pods refer to: images as commands, ConfigMaps and Secrets by name, Services for service links."""

    images: Mapping[str, Sequence[str]]
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)
    """Name of a Service to its address."""


class Container:
    """One container of a pod, and its process."""

    def __init__(self, pod: Pod, spec: Mapping[str, Any], *, is_sidecar: bool) -> None:
        self.spec, self.name, self.is_sidecar = spec, str(spec["name"]), is_sidecar
        self._pod = pod
        self.child: Child | None = None
        self.is_started = False
        """True if its startupProbe has succeeded since the last start."""
        self.is_ready = False
        self.starts = 0
        self.ended = threading.Event()
        """Set when it has ended and is not started again."""
        self.status: int | None = None
        """Exit status of the last process that ended."""

    @property
    def log(self) -> Path:
        return self._pod.folder / f"{self.name}.log"

    def output(self) -> str:
        """Return everything that its processes wrote."""
        return self.log.read_text() if self.log.exists() else ""

    def start(self) -> None:
        """Start the process."""
        self.is_started = self.is_ready = False
        self.starts += 1
        command = [*self._pod.cluster.images[self.spec["image"]], *self.spec.get("command", [])]
        command += self.spec.get("args", [])
        scratch = self._pod.folder / f"{self.name}-{self.starts}"
        for name in ("upper", "work"):
            (scratch / name).mkdir(parents=True)
        mounts = [str(word) for pair in self._pod.mounts(self.spec) for word in pair]
        mounting = ["unshare", "--mount", "sh", "-c", SETUP, "sh", str(scratch), str(self._pod.node.hosts), *mounts]
        environment = self._pod.environment(self.spec)
        self.child = Child([*self._pod.sandbox.enter, *mounting, "--", *command], self.log, environment)
        self._pod.note(self.name, "start")

    def probe(self, name: str) -> bool:
        """Run a probe once. Return True if it succeeds or there is none."""
        probe = self.spec.get(name)
        if probe is None:
            return True
        get = probe["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in self.spec.get("ports", []) if "name" in port}
        port = int(ports.get(get["port"], get["port"]))
        connection = http.client.HTTPConnection(self._pod.address, port, timeout=probe.get("timeoutSeconds", 1))
        try:
            connection.request("GET", get["path"])
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class Pod:
    """A pod of a node, from its start until it has ended."""

    def __init__(self, node: Node, cluster: Cluster, name: str, template: Mapping[str, Any]) -> None:
        """`template`: metadata and spec, as in a Deployment, StatefulSet or Job."""
        self.node, self.cluster, self.name, self.spec = node, cluster, name, template["spec"]
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=node.folder))
        self.sandbox = node.sandbox()
        self.events: list[Event] = []
        self.volumes = {volume["name"]: self._volume(volume) for volume in self.spec.get("volumes", [])}
        inits = [self._container(spec) for spec in self.spec.get("initContainers", [])]
        self.inits: list[Container] = inits
        self.containers = [Container(self, spec, is_sidecar=False) for spec in self.spec["containers"]]
        self._deleted = threading.Event()
        self._grace_s = float(self.spec.get("terminationGracePeriodSeconds", GRACE_DEFAULT_S))
        self.over = threading.Event()
        """Set when every container has ended."""
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def address(self) -> str:
        return self.sandbox.address

    @property
    def sidecars(self) -> list[Container]:
        return [each for each in self.inits if each.is_sidecar]

    @property
    def is_ready(self) -> bool:
        """True if a Service may send connections here."""
        ready = all(each.is_ready for each in (*self.containers, *self.sidecars))
        return ready and not self._deleted.is_set() and not self.over.is_set()

    @property
    def phase(self) -> str:
        """Running, Succeeded or Failed, by the containers without the sidecars."""
        if not all(each.ended.is_set() for each in self.containers):
            return "Running"
        return "Failed" if any(each.status for each in self.containers) else "Succeeded"

    def container(self, name: str) -> Container:
        return next(each for each in (*self.inits, *self.containers) if each.name == name)

    def start(self) -> Pod:
        self._thread.start()
        return self

    def delete(self, grace_s: float | None = None) -> None:
        """Begin to end the pod, as its deletion does."""
        if grace_s is not None:
            self._grace_s = grace_s
        self._deleted.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until the pod is over. Raises TimeoutError."""
        if not self.over.wait(timeout_s):
            raise TimeoutError(f"{self.name} has not ended after {timeout_s} s: {self.events}")
        self._thread.join()

    def kill(self) -> None:
        """End everything immediately, as the loss of a node does."""
        self.delete(grace_s=0)
        self.wait(30)

    def note(self, container: str, kind: str) -> None:
        self.events.append(Event(time.monotonic(), container, kind))

    def times(self, container: str, kind: str) -> list[float]:
        """Return when something happened to a container."""
        return [event.at for event in self.events if (event.container, event.kind) == (container, kind)]

    # What containers have

    def _container(self, spec: Mapping[str, Any]) -> Container:
        return Container(self, spec, is_sidecar=spec.get("restartPolicy") == "Always")

    def _volume(self, volume: Mapping[str, Any]) -> MountedFiles:
        folder = self.folder / f"volume-{volume['name']}"
        if "configMap" in volume:
            return MountedFiles(folder, self.cluster.config_maps[volume["configMap"]["name"]])
        if "secret" in volume:
            return MountedFiles(folder, self.cluster.secrets[volume["secret"]["secretName"]])
        return MountedFiles(folder, {})

    def mounts(self, spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield the folder and the target of each mounted volume."""
        for mount in spec.get("volumeMounts", []):
            yield self.volumes[mount["name"]].folder, mount["mountPath"]

    def environment(self, spec: Mapping[str, Any]) -> dict[str, str]:
        """Return the environment of a container."""
        values: dict[str, str] = {}
        if self.spec.get("enableServiceLinks", True):
            for name, address in self.cluster.services.items():
                values[f"{name.upper().replace('-', '_')}_SERVICE_HOST"] = address
        for entry in spec.get("env", []):
            values[entry["name"]] = self._value(entry, values)
        own = {name: value for name, value in os.environ.items() if not name.startswith("KSP_")}
        return own | values

    def _value(self, entry: Mapping[str, Any], values: Mapping[str, str]) -> str:
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            fields = {"metadata.name": self.name, "status.podIP": self.address}
            return fields[source["fieldRef"]["fieldPath"]]
        if "secretKeyRef" in source:
            return self.cluster.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
        return re.sub(r"\$\((\w+)\)", lambda match: values.get(match[1], match[0]), entry.get("value", ""))

    # From the start to the end

    def _run(self) -> None:
        try:
            if self._start_all():
                self._wait_for_the_end()
            self._end_all()
        finally:
            self._kill_all()
            self.over.set()
            self.sandbox.close()

    def _start_all(self) -> bool:
        """Start the containers in order. Return False if the pod ends before the last one has started."""
        for each in self.inits:
            each.start()
            self._watch(each)
            done = (lambda c=each: c.is_started) if each.is_sidecar else each.ended.is_set
            if not self._until(done) or (not each.is_sidecar and each.status):
                return False
        for each in self.containers:
            each.start()
            self._watch(each)
        return True

    def _until(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self._deleted.wait(STEP_S):
                return False
        return True

    def _wait_for_the_end(self) -> None:
        self._until(lambda: all(each.ended.is_set() for each in self.containers))

    def _watch(self, container: Container) -> None:
        threading.Thread(target=self._keep, args=(container,), daemon=True).start()
        threading.Thread(target=self._probe, args=(container,), daemon=True).start()

    def _keep(self, container: Container) -> None:
        """Restart a container that ended, if its restart policy says so."""
        while not container.ended.is_set():
            assert container.child is not None
            with suppress(subprocess.TimeoutExpired):
                container.status = container.child.wait(STEP_S)
                container.is_ready = container.is_started = False
                self.note(container.name, f"exit {container.status}")
                if self._restarts(container):
                    time.sleep(RESTART_S)
                if self._restarts(container):
                    container.start()
                else:
                    container.ended.set()

    def _restarts(self, container: Container) -> bool:
        if self._deleted.is_set() or (container.is_sidecar and self._are_containers_done()):
            return False
        policy = "Always" if container.is_sidecar else self.spec.get("restartPolicy", "Always")
        if container in self.inits and not container.is_sidecar:
            policy = "OnFailure" if policy == "Always" else policy
        return policy == "Always" or (policy == "OnFailure" and container.status != 0)

    def _are_containers_done(self) -> bool:
        return all(each.ended.is_set() for each in self.containers)

    # Probes

    def _probe(self, container: Container) -> None:
        failures = {"startupProbe": 0, "livenessProbe": 0, "readinessProbe": 0}
        due = dict.fromkeys(failures, 0.0)
        while not container.ended.wait(STEP_S) and not self._deleted.is_set():
            names = ["livenessProbe", "readinessProbe"] if container.is_started else ["startupProbe"]
            for name in names:
                probe = container.spec.get(name, {})
                if time.monotonic() < due[name]:
                    continue
                due[name] = time.monotonic() + float(probe.get("periodSeconds", 10))
                succeeded, starts = container.probe(name), container.starts
                failures[name] = 0 if succeeded else failures[name] + 1
                self._probed(container, name, succeeded, failures[name] >= int(probe.get("failureThreshold", 3)))
                if container.starts != starts or not container.is_started:
                    failures |= {"livenessProbe": 0, "readinessProbe": 0}

    def _probed(self, container: Container, name: str, succeeded: bool, is_limit: bool) -> None:
        if name == "startupProbe" and succeeded and container.child is not None and container.child.status is None:
            container.is_started = True
            self.note(container.name, "started")
        elif name == "readinessProbe" and container.is_started and (succeeded or is_limit):
            if succeeded != container.is_ready:
                self.note(container.name, "ready" if succeeded else "unready")
            container.is_ready = succeeded
        elif name != "readinessProbe" and is_limit and not succeeded and container.child is not None:
            self.note(container.name, f"{name} failed")
            container.child.signal(signal.SIGTERM)

    # The end

    def _end_all(self) -> None:
        running = [each for each in (*self.inits, *self.containers) if each.child is not None]
        threads = [threading.Thread(target=self._end, args=(each,), daemon=True) for each in running]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _end(self, container: Container) -> None:
        """End a container as killContainer does: preStop, the turn of this container, SIGTERM, SIGKILL."""
        grace = float(int(self._grace_s))
        if grace and not container.ended.is_set():
            grace -= self._pre_stop(container, grace)
        if grace > 0:
            grace -= int(self._wait_for_turn(container, grace))
        if container.ended.is_set() or container.child is None:
            return
        self.note(container.name, "SIGTERM")
        container.child.signal(signal.SIGTERM)
        if not container.ended.wait(max(grace, GRACE_MIN_S)):
            self.note(container.name, "SIGKILL")
            container.child.signal(signal.SIGKILL)
        container.ended.wait()

    def _pre_stop(self, container: Container, grace: float) -> int:
        hook = container.spec.get("lifecycle", {}).get("preStop", {})
        began = time.monotonic()
        if "sleep" in hook:
            self.note(container.name, "preStop")
            container.ended.wait(min(float(hook["sleep"]["seconds"]), grace))
        elif "exec" in hook:
            self.note(container.name, "preStop")
            command = [*self.sandbox.enter, *hook["exec"]["command"]]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(command, timeout=grace, check=False, capture_output=True)
        return int(time.monotonic() - began)

    def _wait_for_turn(self, container: Container, grace: float) -> float:
        began = time.monotonic()
        if container.is_sidecar:
            later = self.sidecars[self.sidecars.index(container) + 1 :]
            for other in (*self.containers, *later):
                if other.child is not None:
                    other.ended.wait(max(0.0, began + grace - time.monotonic()))
        return time.monotonic() - began

    def _kill_all(self) -> None:
        self._deleted.set()
        for each in (*self.inits, *self.containers):
            if each.child is not None and not each.ended.is_set():
                each.child.signal(signal.SIGKILL)
                each.ended.wait()


def program(text: str, python: str) -> list[str]:
    """Return the command of an image that runs a Python program."""
    return [python, "-u", "-c", text]


def shell(text: str) -> list[str]:
    """Return the command of an image that runs a shell script."""
    return ["sh", "-c", text]


def described(pod: Pod) -> str:
    """Return the events of a pod, and what its containers wrote."""
    began = pod.events[0].at if pod.events else 0.0
    lines = [f"{event.at - began:8.3f} {event.container} {event.kind}" for event in pod.events]
    return "\n".join([*lines, *(f"--- {each.name}\n{each.output()}" for each in (*pod.inits, *pod.containers))])
