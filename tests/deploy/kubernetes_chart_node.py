"""Pods of the chart on a small node: TLS from mounted Secrets, renewed while clients work, and reloaded settings.

test_kubernetes_lifecycle.py runs this file in new namespaces. The values are tests/deploy/values/fleet_tls.yaml: two
proxies of two workers, TLS towards clients and among each other, and clients must show a certificate. One real broker
3.9.1.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
import trustme
import yaml
from confluent_kafka import AcknowledgeType, KafkaException, Message, Producer, ShareConsumer
from kafka_share_proxy.localkafka.cluster import Cluster as Kafka
from kafka_share_proxy.localkafka.front import installed_command

from tests.support.brokers import OLD, Running
from tests.support.chart_pods import (
    DOMAIN,
    HOST,
    PORTS,
    SERVICE_IP,
    manifests_of,
    pods_of_chart,
    settings_for,
    with_service_address,
)
from tests.support.helm_charts import one
from tests.support.node_network import Node, Service
from tests.support.raw import until
from tests.support.small_kubelet import Pod, described
from tests.support.small_replicas import Replicas

VALUES = "fleet_tls"
BOOTSTRAP, PEER, ADMIN = 9092, 9191, 8080
LIMIT_S = 60.0
STATE_PARTITIONS = 50
WORKERS = 2


def issued(name: str, authority: trustme.CA) -> dict[str, str]:
    """Return the Secret that cert-manager makes of a Certificate of the chart."""
    certificate = one(manifests_of(VALUES), "Certificate", name)["spec"]
    pair = authority.issue_cert(*certificate["dnsNames"])
    return {
        "tls.crt": "".join(each.bytes().decode() for each in pair.cert_chain_pems),
        "tls.key": pair.private_key_pem.bytes().decode(),
        "ca.crt": authority.cert_pem.bytes().decode(),
    }


class Identity:
    """A client with a certificate of an authority, which it trusts for the proxies too."""

    def __init__(self, authority: trustme.CA) -> None:
        self._authority, self._pair = authority, authority.issue_cert("client")

    def settings(self) -> dict[str, Any]:
        """Return the settings of librdkafka."""
        return {
            "bootstrap.servers": f"{HOST}:{BOOTSTRAP}",
            "security.protocol": "ssl",
            "ssl.ca.pem": self._authority.cert_pem.bytes().decode(),
            "ssl.certificate.pem": "".join(each.bytes().decode() for each in self._pair.cert_chain_pems),
            "ssl.key.pem": self._pair.private_key_pem.bytes().decode(),
            "log_level": 0,
        }

    def is_served(self) -> bool:
        """Return True if a new connection is accepted by both sides."""
        try:
            Producer(self.settings()).list_topics(timeout=3)
        except KafkaException:
            return False
        return True

    def served_at(self, address: str, port: int, name: str) -> str:
        """Return the certificate (PEM) of a listener, which must be valid for the name. Empty if it is not."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authority.configure_trust(context)
        self._pair.configure_cert(context)
        plain = socket.create_connection((address, port), timeout=5)
        with suppress(ssl.SSLError), context.wrap_socket(plain, server_hostname=name) as secured:
            return ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True) or b"")
        plain.close()
        return ""


class Chart:
    """The pods, and what their Secrets have now."""

    def __init__(self, pods: Replicas, service: Service, secrets: Mapping[str, dict[str, str]]) -> None:
        self.pods, self.service = list(pods.pods.values()), service
        self.secrets = dict(secrets)

    def renew(self, volume: str, secret: Mapping[str, str]) -> None:
        """Replace a Secret in every pod, as the kubelet does."""
        self.secrets[volume] = dict(secret)
        for pod in self.pods:
            pod.volumes[volume].write(secret)

    def all_serve(self, volume: str, port: int, name: str, identity: Identity) -> bool:
        """Return True if every pod serves the certificate of its Secret at a port."""
        served = {identity.served_at(pod.address, port, name) for pod in self.pods}
        return served == {self.secrets[volume]["tls.crt"]}

    def assert_not_restarted(self) -> None:
        for pod in self.pods:
            assert pod.container("proxy").starts == 1, described(pod)
            assert pod.is_ready, described(pod)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def peers() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def chart(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, authority: trustme.CA, peers: trustme.CA, node: Node
) -> Iterator[Chart]:
    clients, proxies = issued("kafka-share-proxy", authority), issued("kafka-share-proxy-peer", peers)
    secrets = {"kafka-share-proxy-tls": clients, "kafka-share-proxy-peer-tls": proxies, "kafka-ca": {"ca.crt": ""}}
    with pods_of_chart(node, kafka, VALUES, secrets) as pods, Service(SERVICE_IP, PORTS, pods.endpoints) as service:
        yield Chart(pods, service, {"tls": clients, "peer-tls": proxies})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return with_service_address(Node(tmp_path_factory.mktemp("node")))


@pytest.fixture(scope="module")
def kafka(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    running = Running(tmp_path_factory.mktemp("brokers"))
    yield running.cluster(OLD)
    running.close()


def produced(producer: Producer, topic: str) -> int:
    """Return the offset of a record, once it is confirmed."""
    offsets: list[int] = []

    def confirmed(error: object, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset() or 0)

    producer.produce(topic, b"record", on_delivery=confirmed)
    assert producer.flush(LIMIT_S) == 0
    return offsets[0]


def state_partitions(pod: Pod) -> int:
    """Return how many state partitions of share groups a pod owns."""
    command = [*pod.sandbox.enter, "curl", "--silent", f"localhost:{ADMIN}/readyz/share-groups"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return int(json.loads(done.stdout).get("state_partitions", 0)) if done.returncode == 0 else 0


def linked_peers(pod: Pod) -> set[str]:
    """Return the names of other proxies in a pod's log."""
    complete, _, _ = pod.container("proxy").output().rpartition("\n")
    lines = [json.loads(line) for line in complete.splitlines()]
    return {line["peer"] for line in lines if line["event"] == "peer-linked"}


def test_a_share_group_works_over_tls_through_two_proxies(chart: Chart, authority: trustme.CA) -> None:
    """The proxies reach each other over TLS: each owns a part of the state, and any of them serves any client."""
    until(lambda: sum(map(state_partitions, chart.pods)) == STATE_PARTITIONS, "all state partitions", LIMIT_S)
    assert all(0 < state_partitions(pod) < STATE_PARTITIONS for pod in chart.pods)
    for pod, other in (chart.pods, chart.pods[::-1]):  # all of them have one name for clients
        host = f"{other.name}.kafka-share-proxy-pods.{DOMAIN}"
        workers = {f"{host}:{PEER + number}" for number in range(WORKERS)}
        until(lambda pod=pod, workers=workers: workers <= set(linked_peers(pod)), "links to both workers", LIMIT_S)
        assert workers == {name for name in linked_peers(pod) if name.startswith(host)}
    identity, settled = Identity(authority), 0
    producer = Producer(identity.settings())
    groups = [f"group-{number}" for number in range(4)]  # of several owners
    consumers = [
        ShareConsumer(identity.settings() | {"group.id": group, "share.acknowledgement.mode": "explicit"})
        for group in groups
    ]
    for consumer in consumers:
        consumer.subscribe(["work"])

    def all_settle() -> bool:
        nonlocal settled
        produced(producer, "work")
        done = [settle(consumer) for consumer in consumers]
        settled += sum(done)
        return all(done)

    until(all_settle, "every group to settle records", LIMIT_S)
    for consumer in consumers:
        consumer.close()
    assert settled >= len(groups)


def settle(consumer: ShareConsumer) -> int:
    """Accept the records of one poll. Return their number."""
    messages = [message for message in consumer.poll(0.5) if message.error() is None]
    for message in messages:
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
    consumer.commit_sync()
    return len(messages)


def test_a_client_without_a_certificate_is_refused(chart: Chart, authority: trustme.CA) -> None:
    assert Identity(authority).is_served()
    assert not Identity(trustme.CA()).is_served()


def test_a_renewed_certificate_is_served_without_a_restart_or_a_cut_connection(
    chart: Chart, authority: trustme.CA, peers: trustme.CA
) -> None:
    client, proxy = Identity(authority), Identity(peers)
    server = f"peers.kafka-share-proxy-pods.{DOMAIN}"
    assert chart.all_serve("tls", BOOTSTRAP, HOST, client)
    assert chart.all_serve("peer-tls", PEER, server, proxy)
    at_work = Producer(client.settings())
    first, connections = produced(at_work, "renewed"), chart.service.connections
    chart.renew("tls", issued("kafka-share-proxy", authority))
    chart.renew("peer-tls", issued("kafka-share-proxy-peer", peers))
    until(lambda: chart.all_serve("tls", BOOTSTRAP, HOST, client), "the new certificate for clients", LIMIT_S)
    until(lambda: chart.all_serve("peer-tls", PEER, server, proxy), "the new certificate of the fleet", LIMIT_S)
    assert produced(at_work, "renewed") == first + 1
    assert chart.service.connections == connections, "the client's connections are the same"
    chart.assert_not_restarted()


def test_a_renewed_authority_decides_about_new_clients(chart: Chart, authority: trustme.CA) -> None:
    before, renewed = Identity(authority), trustme.CA()
    chart.renew("tls", issued("kafka-share-proxy", renewed))
    until(Identity(renewed).is_served, "clients of the new authority to be served", LIMIT_S)
    until(lambda: chart.all_serve("tls", BOOTSTRAP, HOST, Identity(renewed)), "it in every pod", LIMIT_S)
    until(lambda: not before.is_served(), "every worker to refuse those of the authority before", LIMIT_S)
    chart.renew("tls", issued("kafka-share-proxy", authority))
    until(lambda: chart.all_serve("tls", BOOTSTRAP, HOST, before), "the authority before", LIMIT_S)
    chart.assert_not_restarted()


def test_new_settings_are_applied_by_reload_in_each_pod(chart: Chart, kafka: Kafka, authority: trustme.CA) -> None:
    """The ConfigMap is replaced, and then the command of the notes is run."""
    producer = Producer(Identity(authority).settings())
    produced(producer, "reloaded")
    settings = settings_for(kafka, manifests_of(VALUES))
    settings["limits"] = {"connection_age_s": 1}
    for pod in chart.pods:
        pod.volumes["settings"].write({"settings.yaml": yaml.safe_dump(settings)})
        assert "limits.connection_age_s" in reload(pod)
    connections = chart.service.connections

    def reconnected() -> bool:
        produced(producer, "reloaded")
        return chart.service.connections > connections + 1

    until(reconnected, "connections to be closed by their age and replaced", LIMIT_S)
    chart.assert_not_restarted()


def reload(pod: Pod) -> str:
    """Run the command in a pod. Return what it prints."""
    command = [*pod.sandbox.enter, *installed_command(), "reload", "--admin", f"localhost:{ADMIN}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
