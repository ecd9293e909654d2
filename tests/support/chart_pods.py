"""Pods of the chart on the small node, from the rendered files, in front of a real broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml
from kafka_share_proxy.localkafka.cluster import Cluster as Kafka
from kafka_share_proxy.localkafka.front import installed_command

from tests.support.helm_charts import NAMESPACE, RENDERED, documents, one
from tests.support.node_network import NODE_IP, Node, Service
from tests.support.small_kubelet import Cluster
from tests.support.small_replicas import Replicas

KAFKA_PORT, SERVICE_IP = 19092, "10.244.0.2"
DOMAIN = f"{NAMESPACE}.svc.cluster.local"
HOST = f"kafka-share-proxy.{DOMAIN}"
PORTS = {port: port for port in range(9092, 9097)}
"""Ports of the Service: bootstrap, and brokers 0 to 3."""
PEER_SECRET = {"kafka-share-proxy-peer": {"secret": "of the fleet of this test"}}


def manifests_of(name: str) -> list[dict[str, Any]]:
    """Return the manifests of tests/deploy/values/`name`.yaml."""
    return documents((RENDERED / f"{name}.yaml").read_text(encoding="utf-8"))


def settings_for(kafka: Kafka, manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings file of the manifests, with the address of this broker."""
    settings: dict[str, Any] = yaml.safe_load(one(manifests, "ConfigMap")["data"]["settings.yaml"])
    address = f"{NODE_IP}:{KAFKA_PORT}"
    settings["upstream"] = {"bootstrap": address, "nodes": {kafka.nodes[0].node_id: address}}
    return settings


@contextmanager
def pods_of_chart(
    node: Node, kafka: Kafka, name: str, secrets: Mapping[str, dict[str, str]] | None = None
) -> Iterator[Replicas]:
    """Run the pods of a rendered file until the end of the block. `secrets`: in addition to that of a fleet."""
    manifests = manifests_of(name)
    (workload,) = [each for each in manifests if each["kind"] in ("Deployment", "StatefulSet")]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    cluster = Cluster(
        images={container["image"]: installed_command()},
        config_maps={"kafka-share-proxy": {"settings.yaml": yaml.safe_dump(settings_for(kafka, manifests))}},
        secrets={**PEER_SECRET, **(secrets or {})},
    )
    pods = Replicas(node, cluster, workload, f"kafka-share-proxy-pods.{DOMAIN}")
    with Service(NODE_IP, {KAFKA_PORT: kafka.nodes[0].port}, lambda: ["127.0.0.1"]):
        try:
            pods.start()
            yield pods
        finally:
            pods.kill()


def with_service_address(node: Node) -> Node:
    """Give a node the address and the name of the chart's Service."""
    node.add_service_address(SERVICE_IP)
    node.add_name(HOST, SERVICE_IP)
    return node
