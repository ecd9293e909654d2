"""A certificate for clients is replaced while clients are at work: connections stay, new ones get the new one."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support import java_tools
from tests.support.brokers import OLD, Running
from tests.support.raw import until

pytestmark = pytest.mark.broker

LIMIT_S = 30.0
NOTICED_S = 2.0
"""Seconds from the change of a file to the first handshake with it (docs/operate.md)."""
SLOWER = 3
"""Factor for a busy machine."""
JAVA_RATE = 100
"""Records a second."""


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


def write_pair(folder: Path, authority: trustme.CA) -> None:
    pair = authority.issue_cert(HOST)
    (folder / "cert.pem").write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    (folder / "key.pem").write_bytes(pair.private_key_pem.bytes())


def producer(bootstrap: str, authority: trustme.CA) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.pem": authority.cert_pem.bytes().decode(),
            "acks": "all",
        }
    )


def produce(sender: Producer, topic: str, value: str) -> int:
    """Return the offset of a record, once it is acknowledged."""
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    sender.produce(topic, value.encode(), on_delivery=delivered)
    assert sender.flush(LIMIT_S) == 0
    return offsets[0]


def is_trusted(bootstrap: str, authority: trustme.CA) -> bool:
    try:
        producer(bootstrap, authority).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def shows(front: Front, authority: trustme.CA) -> bool:
    """Return True if a new connection gets a certificate of this authority."""
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    try:
        with socket.create_connection((HOST, front.port), LIMIT_S) as sock:
            context.wrap_socket(sock, server_hostname=HOST).close()
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_librdkafka_keeps_its_connections_and_new_clients_get_the_new_certificate(
    running: Running, kafka: Cluster, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    old, new = trustme.CA(), trustme.CA()
    write_pair(tmp_path, old)
    files = {"cert_file": str(tmp_path / "cert.pem"), "key_file": str(tmp_path / "key.pem")}
    front = running.front(kafka.bootstrap, {"client_tls": files})
    topic = fresh("renewed")
    at_work = producer(front.bootstrap, old)
    first = produce(at_work, topic, "before")

    write_pair(tmp_path, new)
    until(lambda: shows(front, new), "the new certificate", NOTICED_S * SLOWER)
    assert is_trusted(front.bootstrap, new)
    assert not is_trusted(front.bootstrap, old)
    assert produce(at_work, topic, "after") == first + 1
    assert produce(producer(front.bootstrap, new), topic, "new") == first + 2

    (tmp_path / "key.pem").write_text("broken")
    until(lambda: "reload-refused" in front.log.read_text(), "the refusal")
    assert is_trusted(front.bootstrap, new)
    assert produce(at_work, topic, "still") == first + 3


class JavaProducer:
    """Kafka's own producer at a constant rate, which trusts one authority."""

    def __init__(self, front: Front, folder: Path, authority: trustme.CA, topic: str) -> None:
        folder.mkdir()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        settings = folder / "java.properties"
        settings.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={folder / 'ca.pem'}\n"
            f"client.id={folder.name}\nmax.block.ms=5000\n"
        )
        common = ["--bootstrap-server", front.bootstrap, "--topic", topic, "--command-config", str(settings)]
        self.child = java_tools.start(
            "VerifiableProducer", folder / "log", *common, "--throughput", str(JAVA_RATE), "--acks", "-1"
        )

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (line for line in self.child.log.read_text().splitlines() if line.startswith("{") and line[-1] == "}")
        return [event for event in map(json.loads, lines) if event["name"] == name]

    def produces(self) -> None:
        """Wait until it has produced for another second. Raises AssertionError if it does not."""
        before = len(self.events("producer_send_success"))
        until(lambda: len(self.events("producer_send_success")) > before + JAVA_RATE, f"records: {self.child.output()}")


def connections(front: Front, client: str) -> set[tuple[int, int]]:
    """Return worker and number of each connection of a client id."""
    listed = json.loads(front.send_request(f"/connections/{client}")[1])["connections"]
    return {(each["worker"], each["connection"]) for each in listed}


def test_java_keeps_its_connections_and_new_clients_get_the_new_certificate(
    running: Running, kafka: Cluster, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """With two workers. At the end the proxy has both: new connections with the new one, and the first of all."""
    old, new = trustme.CA(), trustme.CA()
    write_pair(tmp_path, old)
    files = {"cert_file": str(tmp_path / "cert.pem"), "key_file": str(tmp_path / "key.pem")}
    elsewhere = {"share_groups": {"serve": "upstream"}, "commits": {"serve": False}}
    front = running.front(kafka.bootstrap, {"client_tls": files, "workers": 2, **elsewhere})
    topic = fresh("renewed")
    at_work = JavaProducer(front, tmp_path / "at-work", old, topic)
    at_work.produces()
    before = connections(front, "at-work")

    write_pair(tmp_path, new)
    changed_at = time.monotonic()
    until(lambda: all(shows(front, new) for _ in range(10)), "the new certificate of both", NOTICED_S * SLOWER)
    print(f"new certificate after {time.monotonic() - changed_at:.2f} s")
    later, distrusting = (JavaProducer(front, tmp_path / name, ca, topic) for name, ca in (("n", new), ("o", old)))
    later.produces()
    at_work.produces()
    until(lambda: distrusting.events("producer_send_error"), "the old authority to be too little", LIMIT_S)
    assert distrusting.events("producer_send_success") == []

    (tmp_path / "cert.pem").write_text("broken")
    until(lambda: "reload-refused" in front.log.read_text(), "the refusal")
    later.produces()
    at_work.produces()
    assert shows(front, new)
    assert connections(front, "at-work") == before, "the same connections"
    for each in (at_work, later, distrusting):
        each.child.stop()
    assert [each.events("producer_send_error") for each in (at_work, later)] == [[], []]
