"""A life of the chart, from `helm install` to `helm uninstall` (kubernetes_cluster.py runs this on a small node).

API server, controllers and scheduler are Kubernetes' own. The kubelet and the Service are those of the tests. One real
broker 3.9.1, stock clients. The tests follow each other in one cluster.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Producer, ShareConsumer
from kafka_share_proxy.localkafka.cluster import Cluster as Kafka
from kafka_share_proxy.localkafka.front import installed_command

from tests.support.api_kubelet import ApiKubelet
from tests.support.brokers import OLD, Running
from tests.support.chart_pods import KAFKA_PORT, PORTS
from tests.support.control_plane import ControlPlane
from tests.support.helm_charts import CHART, CHECKOUT, documents
from tests.support.node_network import NODE_IP, Node, Service
from tests.support.raw import until
from tests.support.small_kubelet import described, program

VERSION = metadata.version("kafka-share-proxy")
NAME, NAMESPACE, TOPIC = "kafka-share-proxy", "kafka", "work"
IMAGE = "registry.example/kafka-share-proxy"
READY = "180s"
LIMIT_S = 120.0
RATE_S = 0.01
"""Seconds between two records."""
JOB = """
import os
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "log_level": 0})
producer.produce("work", b"of the job")
print("unsent", producer.flush(30), flush=True)
"""


class World:
    """The cluster, and the values file of a user."""

    def __init__(self, folder: Path, node: Node, kafka: Kafka) -> None:
        self.plane, self._node = ControlPlane(folder), node
        self.plane.run_controllers()
        images = {f"{name}:{VERSION}": installed_command() for name in (IMAGE, "kafka-share-proxy")}
        self.kubelet = ApiKubelet(self.plane, node, images | {"application:1": program(JOB, sys.executable)})
        self.address = f"{NODE_IP}:{KAFKA_PORT}"
        self.upstream = {"bootstrap": self.address, "nodes": {kafka.nodes[0].node_id: self.address}}
        self.values = folder / "values.yaml"
        self.write({"mode": "fleet", "replicas": 3})

    def write(self, more: dict[str, Any], **settings: Any) -> None:
        """Write the values file as the README of the chart has it."""
        values = {"image": {"repository": IMAGE}, "settings": {"upstream": self.upstream, **settings}}
        self.values.write_text(yaml.safe_dump(values | {"brokers": {"first": 0, "count": 3}} | more))

    def helm(self, verb: str) -> str:
        words = ("--namespace", NAMESPACE, "--create-namespace") if verb == "install" else ("--namespace", NAMESPACE)
        return self.plane.helm(verb, NAME, str(CHART), *words, "--values", str(self.values))

    def rolled_out(self, kind: str = "statefulset") -> None:
        self.plane.kubectl("--namespace", NAMESPACE, "rollout", "status", f"{kind}/{NAME}", f"--timeout={READY}")

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the pods of the chart by UID."""
        listed = self.plane.get("--namespace", NAMESPACE, "pods", "--selector", f"app.kubernetes.io/name={NAME}")
        return {item["metadata"]["uid"]: item for item in listed["items"]}

    def endpoints(self) -> list[str]:
        """Return the addresses that the controller of EndpointSlices calls ready."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        slices = self.plane.request("GET", f"{path}?labelSelector=kubernetes.io/service-name={NAME}")["items"]
        ready = [each for one in slices for each in one.get("endpoints") or [] if each["conditions"].get("ready")]
        return [address for each in ready for address in each["addresses"]]

    def service(self, bootstrap: str) -> Service:
        """Return the Service at its cluster IP, which the name in the notes resolves to."""
        address = self.plane.get("--namespace", NAMESPACE, "service", NAME)["spec"]["clusterIP"]
        self._node.add_service_address(address)
        self._node.add_name(bootstrap.partition(":")[0], address)
        return Service(address, PORTS, self.endpoints)

    def described(self) -> str:
        pods = "\n".join(f"=== {pod.name}\n{described(pod)}" for pod in self.kubelet.pods.values())
        return f"{pods[-20_000:]}\n{self.plane.logs()}"

    def close(self) -> None:
        try:
            self.kubelet.close()
        finally:
            self.plane.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    node = Node(tmp_path_factory.mktemp("node"))
    running = Running(tmp_path_factory.mktemp("brokers"))
    kafka = running.cluster(OLD)
    with Service(NODE_IP, {KAFKA_PORT: kafka.nodes[0].port}, lambda: ["127.0.0.1"]):
        cluster_world = World(tmp_path_factory.mktemp("cluster"), node, kafka)
        try:
            yield cluster_world
        finally:
            print(cluster_world.described())
            cluster_world.close()
            running.close()


@pytest.fixture(scope="module")
def bootstrap(world: World) -> Iterator[str]:
    """Install the chart. Return the address in the notes, which is served until the last test."""
    notes = world.helm("install")
    (address,) = re.findall(r"bootstrap\.servers=(\S+)", notes)
    for command in re.findall(r"kubectl (--namespace .* rollout status \S+)", notes):
        world.plane.kubectl(*command.split(), f"--timeout={READY}")
    with world.service(address):
        yield address


class Work:
    """A producer, and a member of a share group, on stock clients until the end of the block."""

    def __init__(self, bootstrap: str) -> None:
        servers = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.confirmed: set[int] = set()
        self.settled: list[tuple[int, int]] = []
        """Partition and offset of records whose acknowledgement was confirmed."""
        self.errors: list[KafkaError] = []
        self.interruptions: list[KafkaException] = []
        self._sent = 0
        self._producer = Producer(servers)
        options = {"group.id": "workers", "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer(servers | options)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._settle)]

    def __enter__(self) -> Work:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        while not self._stop.wait(RATE_S):
            self._send()
            self._producer.poll(0)
        self._producer.flush(LIMIT_S)

    def _send(self) -> None:
        number, self._sent = self._sent, self._sent + 1

        def confirmed(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.confirmed.add(number)
            else:
                self.errors.append(error)

        self._producer.produce(TOPIC, str(number).encode(), on_delivery=confirmed)

    def _settle(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self._stop.is_set():
            try:
                self._settle_once()
            except KafkaException as error:  # of a connection that ended
                self.interruptions.append(error)
        self._consumer.close()

    def _settle_once(self) -> None:
        messages = [message for message in self._consumer.poll(0.2) if message.error() is None]
        for message in messages:
            self._consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        outcome = self._consumer.commit_sync()
        confirmed = {part.partition for part, error in outcome.items() if error is None}
        places = [(message.partition() or 0, message.offset() or 0) for message in messages]
        self.settled += [place for place in places if place[0] in confirmed]


def during(action: Callable[[], object], check: Callable[[], None]) -> None:
    """Run an action, and look at something meanwhile."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        check()
        time.sleep(0.1)
    if failed:
        raise failed[0]


def test_an_installed_fleet_serves_clients_at_the_address_of_the_notes(world: World, bootstrap: str) -> None:
    assert bootstrap == f"{NAME}.{NAMESPACE}.svc.cluster.local:9092"
    assert sorted(pod["metadata"]["name"] for pod in world.pods().values()) == [f"{NAME}-{i}" for i in range(3)]
    with Work(bootstrap) as work:
        until(lambda: len(work.settled) > 20, "the share group to settle records", LIMIT_S)
    assert not work.errors


def test_an_upgrade_replaces_one_pod_after_the_other_while_clients_work(world: World, bootstrap: str) -> None:
    before, ready = world.pods().keys(), [3]
    world.write({"mode": "fleet", "replicas": 3, "fleet": {"minReadySeconds": 3}}, limits={"connections": 9000})
    with Work(bootstrap) as work:
        until(lambda: len(work.settled) > 20, "the share group to settle records", LIMIT_S)
        world.helm("upgrade")
        during(world.rolled_out, lambda: ready.append(len(world.endpoints())))
        settled = len(work.settled)
        until(lambda: len(work.settled) > settled + 20, "it to settle records after the update", LIMIT_S)
    assert not before & world.pods().keys()
    assert min(ready) == 2, "never more than one is away"
    assert not work.errors
    assert len(work.confirmed) > 100
    assert len(work.settled) == len(set(work.settled)), "none is settled twice"


def evict(world: World, ordinal: int) -> int:
    """Return the status of the request."""
    name = f"{NAME}-{ordinal}"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    try:
        world.plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", body)
    except urllib.error.HTTPError as error:
        return error.code
    return HTTPStatus.CREATED


def test_a_drained_node_takes_one_pod_at_a_time(world: World, bootstrap: str) -> None:
    assert bootstrap
    until(lambda: evict(world, 0) == HTTPStatus.CREATED, "an eviction to be allowed", LIMIT_S)
    assert evict(world, 1) == HTTPStatus.TOO_MANY_REQUESTS
    until(lambda: evict(world, 1) == HTTPStatus.CREATED, "the next one, once the first pod is replaced", LIMIT_S)
    world.rolled_out()


def test_new_settings_are_applied_without_new_pods(world: World, bootstrap: str) -> None:
    """`restartOnSettingsChange: false` replaces the pods once, and not at the next change."""
    assert bootstrap
    fleet = {"mode": "fleet", "replicas": 3, "fleet": {"minReadySeconds": 3}, "restartOnSettingsChange": False}
    world.write(fleet)
    world.helm("upgrade")
    world.rolled_out()
    before = world.pods().keys()
    world.write(fleet, log_level="debug")
    notes = world.helm("upgrade")
    (command,) = re.findall(r"exec \$pod -- kafka-share-proxy (reload .*)", notes)
    for pod in [world.kubelet.pods[uid] for uid in before]:
        words = [*pod.sandbox.enter, *installed_command(), *command.split()]
        until(partial(is_printed, "log_level", words), "the kubelet to swap the file", LIMIT_S)
    assert world.pods().keys() == before


def is_printed(text: str, command: list[str]) -> bool:
    return text in printed(command)


def printed(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_job_with_the_sidecar_completes(world: World, bootstrap: str) -> None:
    """Its sidecar joins the fleet of the chart, with the same Secret."""
    assert bootstrap
    secret = world.plane.get("--namespace", NAMESPACE, "secret", f"{NAME}-peer")["data"]["secret"]
    value = base64.b64decode(secret).decode()
    world.plane.kubectl("create", "secret", "generic", f"{NAME}-peer", f"--from-literal=secret={value}")
    manifests = CHECKOUT / "deploy" / "kubernetes"
    (config, *_) = documents((manifests / "sidecar.yaml").read_text(encoding="utf-8"))
    settings = yaml.safe_load(config["data"]["settings.yaml"]) | {"upstream": world.upstream}
    config["data"]["settings.yaml"] = yaml.safe_dump(settings)
    world.plane.kubectl("apply", "--filename", "-", text=yaml.safe_dump(config))
    world.plane.kubectl("apply", "--filename", str(manifests / "job.yaml"))
    world.plane.kubectl("wait", "--for=condition=Complete", f"--timeout={READY}", "job/application")


def test_a_removed_fleet_ends_in_order_and_keeps_its_secret(world: World, bootstrap: str) -> None:
    assert bootstrap
    pods = [world.kubelet.pods[uid] for uid in world.pods()]
    world.plane.helm("uninstall", NAME, "--namespace", NAMESPACE)
    until(lambda: not world.pods(), "the pods to end", LIMIT_S)
    assert len(pods) == 3
    for pod in pods:
        assert pod.container("proxy").status == 0, described(pod)
        assert [event for event in pod.events if event.kind == "SIGKILL"] == []
    assert world.plane.get("--namespace", NAMESPACE, "secret", f"{NAME}-peer")["data"]["secret"]


def test_a_single_proxy_is_replaced_by_one_that_is_ready_first(world: World, bootstrap: str) -> None:
    assert bootstrap, "the Service has the same address in the notes, and another cluster IP"
    world.write({})
    world.helm("install")
    world.rolled_out("deployment")
    with world.service(bootstrap), Work(bootstrap) as work:
        until(lambda: len(work.settled) > 20, "the share group to settle records", LIMIT_S)
        before, ready = world.pods().keys(), [1]
        world.write({}, limits={"connections": 9000})
        world.helm("upgrade")
        during(lambda: world.rolled_out("deployment"), lambda: ready.append(len(world.endpoints())))
        settled = len(work.settled)
        until(lambda: len(work.settled) > settled + 20, "it to settle records after the update", LIMIT_S)
    until(lambda: not before & world.pods().keys(), "the pod before to end", LIMIT_S)
    assert min(ready) >= 1
    assert not work.errors
    world.plane.helm("uninstall", NAME, "--namespace", NAMESPACE)
