"""A certificate for clients is replaced while librdkafka is at work: connections stay, new ones get the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.brokers import OLD, Running
from tests.support.raw import until

pytestmark = pytest.mark.broker

LIMIT_S = 30.0


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
    until(lambda: is_trusted(front.bootstrap, new), "the new certificate")
    assert not is_trusted(front.bootstrap, old)
    assert produce(at_work, topic, "after") == first + 1
    assert produce(producer(front.bootstrap, new), topic, "new") == first + 2

    (tmp_path / "key.pem").write_text("broken")
    until(lambda: "reload-refused" in front.log.read_text(), "the refusal")
    assert is_trusted(front.bootstrap, new)
    assert produce(at_work, topic, "still") == first + 3
