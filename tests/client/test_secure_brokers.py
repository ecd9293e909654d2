"""TLS and SASL with brokers of 3.9.1 and 4.3.0, for data, the group, its coordinator and share groups alike."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
import trio
import trustme
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.settings import SaslLogin
from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.test_real_brokers import Dialler
from tests.support.brokers import NEW, OLD, Running
from tests.support.worlds import warm_up

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
EXPIRING, LIFETIME_S = MECHANISMS[2], 1.5
"""Mechanism whose sessions have a lifetime (KIP-368)."""
USER, PASSWORD = "alice", "alice=secret, with what SCRAM escapes"
SECURITY = "org.apache.kafka.common.security"
QUIET = {"log_level": 2}
Fresh = Callable[[str], str]


class Secure(NamedTuple):
    """A broker whose clients come with TLS and SASL."""

    bootstrap: str
    internal: str
    """Listener without authentication and TLS."""
    authority: str
    """PEM of who signed the broker's certificate."""
    shared: str
    """Listener of share groups for such clients: the broker, or a proxy that terminates TLS."""


def properties(folder: Path, authority: trustme.CA) -> dict[str, str]:
    """Return the properties of a broker with a certificate for its address, and all mechanisms."""
    issued = authority.issue_cert(HOST)
    keystore = folder / "keystore.pem"
    keystore.write_bytes(_pkcs8(issued) + b"".join(each.bytes() for each in issued.cert_chain_pems))
    protocols = "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    values = {
        "listener.security.protocol.map": protocols,
        "listener.name.client.ssl.keystore.type": "PEM",
        "listener.name.client.ssl.keystore.location": str(keystore),
        "listener.name.client.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.client.plain.sasl.jaas.config": (
            f'{SECURITY}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
    }
    for mechanism in MECHANISMS[1:]:
        key = f"listener.name.client.{mechanism.lower()}.sasl.jaas.config"
        values[key] = f"{SECURITY}.scram.ScramLoginModule required;"
    values[f"listener.name.client.{EXPIRING.lower()}.connections.max.reauth.ms"] = str(round(LIFETIME_S * 1000))
    return values


def _pkcs8(issued: trustme.LeafCert) -> bytes:
    """Return the key in PKCS #8, the only form that Java reads."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture(scope="module", params=[OLD, NEW])
def secure(request: pytest.FixtureRequest, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Secure:
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("tls")
    cluster: Cluster = running.cluster(request.param, properties=properties(folder, authority))
    internal = f"{HOST}:{cluster.nodes[0].internal_port}"
    admin = AdminClient({"bootstrap.servers": internal, **QUIET})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        expected = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for changed in admin.alter_user_scram_credentials([expected]).values():
            changed.result(30)
    pem = authority.cert_pem.bytes().decode()
    native = request.param == NEW
    shared = cluster if native else running.front(cluster.bootstrap, proxy_settings(cluster, folder, pem))
    if native:
        warm_up(internal)
    return Secure(cluster.bootstrap, internal, pem, shared.bootstrap)


def proxy_settings(cluster: Cluster, folder: Path, authority: str) -> dict[str, Any]:
    """Return settings for TLS with one certificate on both sides, and SASL that passes through."""
    (folder / "ca.pem").write_text(authority)
    keystore = str(folder / "keystore.pem")
    upstream = {
        "bootstrap": cluster.bootstrap,
        "tls": {"ca_file": str(folder / "ca.pem")},
        "sasl": {"mechanism": "SCRAM-SHA-256", "username": USER, "password": PASSWORD},
    }
    return {
        "upstream": upstream,
        "client_tls": {"cert_file": keystore, "key_file": keystore},
        "share_groups": {"state": "memory"},
        "commits": {"state": "memory"},
    }


def filled(secure: Secure, topic: str, count: int) -> list[TopicPartition]:
    """Fill two partitions with this many records each."""
    admin = AdminClient({"bootstrap.servers": secure.internal, **QUIET})
    for created in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        created.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": secure.internal, "enable.idempotence": True, **QUIET})
    for number in range(2 * count):
        producer.produce(topic, b"%d" % (number // 2) + b"." * 500, partition=number % 2)
    assert producer.flush(30) == 0
    return [TopicPartition(topic, number) for number in range(2)]


async def read(consumer: Any, count: int) -> list[Any]:
    got: list[Any] = []
    with trio.move_on_after(60):
        while len(got) < count:
            got += (await consumer.poll(1)).records
    assert len(got) == count, consumer.state()
    return got


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_member_reads_and_commits_over_tls_with_sasl(secure: Secure, fresh: Fresh, mechanism: str) -> None:
    """Responses of several MiB come through TLS as they were sent; every connection proves who it is."""
    partitions = filled(secure, fresh("topic"), 5000)
    tls = ssl.create_default_context(cadata=secure.authority)
    login = SaslLogin(mechanism, USER, lambda: PASSWORD)
    options: dict[str, Any] = {"tls": tls, "sasl": login, "auto_offset_reset": "earliest"}
    topic = partitions[0].topic
    async with open_consumer(secure.bootstrap, group=fresh("group"), topics=[topic], **options) as consumer:
        got = await read(consumer, 10_000)
        for partition in partitions:
            mine = [record for record in got if record.partition == partition.partition]
            assert [int(record.value.rstrip(b".")) for record in mine] == list(range(5000))
        await consumer.commit()
        assert await consumer.committed(partitions) == dict.fromkeys(partitions, OffsetAndMetadata(5000))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sasl": ("SCRAM-SHA-512", USER, "wrong")}, "refuses 'alice'"),
        ({"sasl": ("SCRAM-SHA-256", "mallory", PASSWORD)}, "refuses 'mallory'"),
        ({"sasl": ("PLAIN", USER, "wrong")}, "refuses 'alice'"),
    ],
    ids=["wrong password", "unknown user", "wrong password of PLAIN"],
)
async def test_poll_raises_a_refused_login(secure: Secure, change: dict[str, Any], words: str) -> None:
    tls = ssl.create_default_context(cadata=secure.authority)
    async with open_consumer(secure.bootstrap, partitions=[("t", 0)], tls=tls, **change) as consumer:
        with trio.fail_after(30), pytest.raises(Exception, match=words):
            await consumer.poll(30)


async def test_a_certificate_of_an_unknown_authority_is_refused(secure: Secure) -> None:
    """The server gets no credentials, and the state names the reason."""
    login = ("PLAIN", USER, PASSWORD)
    with trio.fail_after(30):
        async with open_consumer(secure.bootstrap, partitions=[("t", 0)], tls=True, sasl=login) as consumer:
            while not consumer.state().troubles:
                await consumer.poll(0.2)
            assert "the certificate is not accepted" in str(consumer.state().troubles)


# Sessions with a lifetime


def from_the_start(secure: Secure, group: str) -> None:
    """Create a share group that reads a log from its start, and assigns immediately."""
    login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.pem": secure.authority}
    admin = AdminClient({"bootstrap.servers": secure.shared, **tls, **login, **QUIET})
    expected = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in expected.items()
    ]
    for altered in admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)]
    ).values():
        altered.result(30)


async def held(consumer: ShareConsumer, count: int) -> list[Any]:
    got: list[Any] = []
    with trio.move_on_after(60):
        while len(got) < count:
            got += await consumer.poll(1)
    assert len(got) == count, consumer.state()
    return got


async def test_records_that_a_share_consumer_holds_outlive_sasl_sessions(secure: Secure, fresh: Fresh) -> None:
    """A share session ends with its connection, and its locks with it: so sessions are renewed where they are."""
    topic, group = filled(secure, fresh("topic"), 5)[0].topic, fresh("group")
    await trio.to_thread.run_sync(from_the_start, secure, group)
    dialler = Dialler()
    options: dict[str, Any] = {
        "group": group,
        "topics": [topic],
        "tls": ssl.create_default_context(cadata=secure.authority),
        "sasl": SaslLogin(EXPIRING, USER, PASSWORD),
        "acknowledgement_mode": "explicit",
    }
    async with (
        open_share_consumer(secure.shared, connect=dialler, **options) as consumer,
        open_share_consumer(secure.shared, **options) as other,
    ):
        records = await held(consumer, 10)
        connections = len(dialler.streams)
        with trio.move_on_after(2 * LIFETIME_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.poll)
                assert await other.poll() == []
        for record in records:
            assert consumer.acknowledge(record)
        assert await consumer.commit() == dict.fromkeys({record.origin for record in records})
        assert len(dialler.streams) == connections
        assert await other.poll(0.5) == []


async def test_a_member_continues_over_its_connections_when_sessions_of_sasl_end(secure: Secure, fresh: Fresh) -> None:
    """No connection is created again, and no broker ends one."""
    partitions = filled(secure, fresh("topic"), 100)
    dialler = Dialler()
    tls = ssl.create_default_context(cadata=secure.authority)
    options: dict[str, Any] = {"tls": tls, "sasl": (EXPIRING, USER, PASSWORD), "auto_offset_reset": "earliest"}
    topics, group = [partitions[0].topic], fresh("group")
    async with open_consumer(secure.bootstrap, group=group, topics=topics, connect=dialler, **options) as consumer:
        await read(consumer, 200)
        connections = len(dialler.streams)
        began = trio.current_time()
        while trio.current_time() < began + 1.5 * LIFETIME_S:
            await consumer.commit()
            assert (await consumer.poll(0.2)).lost == frozenset()
        assert len(dialler.streams) == connections
        assert consumer.state().troubles == {}


async def test_what_a_secure_listener_refuses_is_an_error_or_a_log_line_that_names_the_cause(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 25.24: no TLS, no credentials, another authority, a wrong password."""
    trusted = ssl.create_default_context(cadata=secure.authority)
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "This port speaks TLS: open the consumer with tls=True"),
        ({"tls": trusted}, "Brokers that want SASL or TLS do that: check sasl= and tls="),
        ({"tls": True}, "the certificate is not accepted"),
        ({"tls": trusted, "sasl": ("PLAIN", USER, "wrong")}, "refuses 'alice'"),
        ({"tls": trusted, "sasl": ("SCRAM-SHA-256", USER, "wrong")}, "refuses 'alice'"),
    ]
    for options, words in cases:
        caplog.clear()
        async with open_consumer(secure.bootstrap, group="g", topics=["a"], api_timeout_s=1.0, **options) as consumer:
            with trio.fail_after(20), pytest.raises(ConsumerError) as caught:
                await consumer.end_offsets([("a", 0)])
        assert words in str(caught.value), options
        assert words in caplog.text, options
