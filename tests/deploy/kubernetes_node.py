"""Pods of deploy/kubernetes on a small node: order of start and end, signals, grace periods, mounted files.

test_kubernetes_lifecycle.py runs this file in new namespaces. One real broker 3.9.1, a stock client as the
application, the sidecar as it is installed.
"""

from __future__ import annotations

import http.client
import socket
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_share_proxy.localkafka.cluster import Cluster as Kafka
from kafka_share_proxy.localkafka.front import installed_command

from tests.support.brokers import OLD, Running
from tests.support.node_network import NODE_IP, Node, Service
from tests.support.raw import until
from tests.support.small_kubelet import Cluster, Pod, described, program, shell

VERSION = metadata.version("kafka-share-proxy")
CHECKOUT = Path(__file__).resolve().parents[2]
MANIFESTS = CHECKOUT / "deploy" / "kubernetes"
SECRET = "of the sidecars of this test"
KAFKA_PORT = 9092
START_S = 60.0
END_S = 60.0
APPLICATION = """
import os, signal, sys, time
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
servers = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "log_level": 0}
producer = Producer(servers)
consumer = ShareConsumer(
    servers | {"group.id": "application", "share.acknowledgement.mode": "explicit"})
consumer.subscribe(["work"])
enough, settled, end = int(os.environ.get("ENOUGH", "1000000")), 0, time.monotonic() + 120
while settled < enough and not stopping and time.monotonic() < end:
    producer.produce("work", b"record")
    producer.poll(0)
    for message in consumer.poll(0.2):
        if message.error() is None:
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            settled += 1
    consumer.commit_sync()
    print("settled", settled, flush=True)
time.sleep(1)  # the sidecar serves until the end of the application
producer.produce("work", b"last")
print("unsent", producer.flush(10), flush=True)
consumer.close()
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def kafka(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    running = Running(tmp_path_factory.mktemp("brokers"))
    yield running.cluster(OLD)
    running.close()


@pytest.fixture
def kafka_service(kafka: Kafka) -> Service:
    """The address at which pods reach the broker, once it is entered."""
    return Service(NODE_IP, {KAFKA_PORT: kafka.nodes[0].port}, lambda: ["127.0.0.1"])


def documents(name: str) -> dict[str, dict[str, Any]]:
    """Return the manifests of a file by their kind."""
    text = (MANIFESTS / name).read_text(encoding="utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


@pytest.fixture
def cluster(kafka: Kafka) -> Cluster:
    """Return the objects of sidecar.yaml, with the address of this broker, as a user edits it."""
    data = dict(documents("sidecar.yaml")["ConfigMap"]["data"])
    settings = yaml.safe_load(data["settings.yaml"])
    broker = kafka.nodes[0].node_id
    settings["upstream"] = {"bootstrap": f"{NODE_IP}:{KAFKA_PORT}", "nodes": {broker: f"{NODE_IP}:{KAFKA_PORT}"}}
    return Cluster(
        images={
            f"kafka-share-proxy:{VERSION}": installed_command(),
            "application:1": program(APPLICATION, sys.executable),
        },
        config_maps={"kafka-share-proxy-sidecar": {"settings.yaml": yaml.safe_dump(settings)}},
        secrets={"kafka-share-proxy-peer": {"secret": SECRET}},
        services={"ksp": "10.96.0.1"},  # its variables would be taken for settings
    )


def status(address: str, path: str) -> int:
    connection = http.client.HTTPConnection(address, 19090, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def settled(pod: Pod) -> int:
    complete, _, _ = pod.container("application").output().rpartition("\n")
    lines = [line for line in complete.splitlines() if line.startswith("settled")]
    return int(lines[-1].split()[1]) if lines else 0


def test_a_sidecar_starts_before_its_application_and_ends_after_it(
    node: Node, kafka_service: Service, cluster: Cluster
) -> None:
    template = documents("sidecar.yaml")["Deployment"]["spec"]["template"]
    pod = Pod(node, cluster, "application-1", template).start()
    sidecar, application = pod.container("kafka-share-proxy"), pod.container("application")
    try:
        # While the cluster is not reached, the sidecar lives and the application waits.
        until(lambda: _is_alive(pod), "the sidecar to respond", START_S)
        assert status(pod.address, "/readyz") == 503
        assert application.starts == 0
        with kafka_service:
            until(lambda: settled(pod) > 5, "the application to settle records", START_S)
            assert pod.times("application", "start")[0] > pod.times("kafka-share-proxy", "started")[0]
            with pytest.raises(ConnectionRefusedError):  # only the pod itself reaches the listener of clients
                socket.create_connection((pod.address, 9092), timeout=5)
            pod.delete()
            pod.wait(END_S)
    except (AssertionError, TimeoutError):
        print(described(pod))
        raise
    finally:
        pod.kill()
    assert "unsent 0" in application.output(), described(pod)
    ended, terminated = pod.times("application", "exit 0"), pod.times("kafka-share-proxy", "SIGTERM")
    assert ended[0] < terminated[0], described(pod)
    assert (application.status, sidecar.status) == (0, 0)
    assert (application.starts, sidecar.starts) == (1, 1)
    assert not [event for event in pod.events if event.kind == "SIGKILL"]


def _is_alive(pod: Pod) -> bool:
    try:
        return status(pod.address, "/livez") == 200
    except OSError:
        return False


def test_a_job_completes_although_its_sidecar_runs(node: Node, kafka_service: Service, cluster: Cluster) -> None:
    template = documents("job.yaml")["Job"]["spec"]["template"]
    template["spec"]["containers"][0]["env"].append({"name": "ENOUGH", "value": "20"})
    with kafka_service:
        pod = Pod(node, cluster, "job-1", template).start()
        try:
            pod.wait(START_S + END_S)
        finally:
            pod.kill()
    assert pod.phase == "Succeeded", described(pod)
    assert settled(pod) >= 20
    assert pod.times("application", "exit 0")[0] < pod.times("kafka-share-proxy", "SIGTERM")[0]
    assert pod.container("kafka-share-proxy").status == 0, described(pod)


def test_a_crashed_sidecar_is_restarted_and_its_application_continues(
    node: Node, kafka_service: Service, cluster: Cluster
) -> None:
    template = documents("sidecar.yaml")["Deployment"]["spec"]["template"]
    with kafka_service:
        pod = Pod(node, cluster, "application-2", template).start()
        try:
            until(lambda: settled(pod) > 0, "the application to settle records", START_S)
            crashed = pod.container("kafka-share-proxy").child
            assert crashed is not None
            crashed.signal(9)
            until(lambda: len(pod.times("kafka-share-proxy", "started")) == 2, "the sidecar to start again", START_S)
            before = settled(pod)
            until(lambda: settled(pod) > before, "the application to settle more records", START_S)
        except (AssertionError, TimeoutError):
            print(described(pod))
            raise
        finally:
            pod.kill()
    assert pod.container("application").starts == 1


# The kubelet itself

SLOW = "trap 'sleep 0.3; exit 0' TERM; echo up; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo up; while :; do sleep 0.05; done"


def template_of(grace_s: int, containers: list[dict[str, Any]], inits: list[dict[str, Any]]) -> dict[str, Any]:
    return {"spec": {"terminationGracePeriodSeconds": grace_s, "containers": containers, "initContainers": inits}}


def test_sidecars_end_in_reverse_order_after_all_containers(node: Node) -> None:
    sidecars = [{"name": name, "image": "slow", "restartPolicy": "Always"} for name in ("first", "second")]
    pod = Pod(
        node, Cluster({"slow": shell(SLOW)}), "order", template_of(20, [{"name": "a", "image": "slow"}], sidecars)
    )
    pod.start()
    until(lambda: pod.container("a").output() == "up\n", "the container to start", 20)
    pod.delete()
    pod.wait(30)
    order = [(event.container, event.kind) for event in pod.events]
    assert order.index(("first", "start")) < order.index(("second", "start")) < order.index(("a", "start"))
    assert order.index(("a", "exit 0")) < order.index(("second", "SIGTERM"))
    assert order.index(("second", "exit 0")) < order.index(("first", "SIGTERM"))


def test_a_container_that_ignores_the_signal_is_killed_when_the_grace_period_is_over(node: Node) -> None:
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}
    pod = Pod(
        node,
        Cluster({"slow": shell(SLOW), "deaf": shell(DEAF)}),
        "grace",
        template_of(
            3, [{"name": "a", "image": "deaf"} | hook], [{"name": "s", "image": "slow", "restartPolicy": "Always"}]
        ),
    ).start()
    until(lambda: pod.container("a").output() == "up\n", "the container to start", 20)
    pod.delete()
    pod.wait(30)
    (hooked,), (killed,) = pod.times("a", "preStop"), pod.times("a", "SIGKILL")
    (terminated,) = pod.times("a", "SIGTERM")
    assert 1.0 <= terminated - hooked < 2.0
    assert 3.0 <= killed - hooked < 4.5, "the hook takes from the grace period"
    assert pod.container("s").status == 0, "every container has two seconds after SIGTERM"


def test_variables_of_services_reach_only_pods_that_want_them(node: Node) -> None:
    images = {"env": shell('echo "$KSP_SERVICE_HOST"')}
    cluster = Cluster(images, services={"ksp": "10.96.0.1"})
    with_links = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "env"}]}}
    without = {"spec": with_links["spec"] | {"enableServiceLinks": False}}
    pods = [Pod(node, cluster, name, each).start() for name, each in (("with", with_links), ("without", without))]
    for pod in pods:
        pod.wait(20)
    assert [pod.container("a").output() for pod in pods] == ["10.96.0.1\n", "\n"]
