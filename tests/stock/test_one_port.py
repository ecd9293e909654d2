"""Stock clients, with certificates, through one port in front of three brokers: directly, and by a load balancer.

The load balancer is HAProxy in TCP mode if the machine has it. It sends PROXY protocol headers of version 2.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.values import Address

from tests.stock.three_nodes import NODES, spread
from tests.support import one_port_client
from tests.support.brokers import Running
from tests.support.host_names import HostNames, need_namespaces
from tests.support.java_tools import command as java_command
from tests.support.load_balancer import SOURCE, load_balancer
from tests.support.programs import built_with_go, output_of
from tests.support.proxy_headers import of_client
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

BOOTSTRAP, PATTERN = "kafka.example", "broker-{id}.kafka.example"
BROKERS = [PATTERN.replace("{id}", str(node)) for node in NODES]
HOSTS = (HOST, "127.0.0.2")
"""Addresses of the proxies."""
STATE_PARTITIONS = 50
BALANCED_HOST = "127.0.0.88"
"""Address of the load balancer for clients."""
RECORDS = 30
TROUBLE = {"server-name-refused", "proxy-header-refused", "client-protocol-error", "request-refused"}
CLIENT = "192.0.2.7"
Fresh = Callable[[str], str]


@dataclass(frozen=True)
class Files:
    """Certificates of one authority."""

    folder: Path
    authority: trustme.CA

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.pem")

    def issue(self, name: str, *names: str) -> None:
        pair = self.authority.issue_cert(*names)
        chain = b"".join(each.bytes() for each in pair.cert_chain_pems)
        (self.folder / f"{name}.pem").write_bytes(chain)
        key = load_pem_private_key(pair.private_key_pem.bytes(), None)
        written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # the form that Java reads
        (self.folder / f"{name}-key.pem").write_bytes(written)
        (self.folder / f"{name}-both.pem").write_bytes(written + chain)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a proxy with one port, whose clients need certificates."""
        files = {"cert_file": "server", "key_file": "server-key", "client_ca_file": "ca"}
        return {
            "exposure": "sni",
            "first_port": None,
            "advertise": BOOTSTRAP,
            "broker_names": PATTERN,
            "client_tls": {key: self.path(name) for key, name in files.items()},
            "proxy_protocol": {"clients": [SOURCE]},
            "log_format": "json",
            "log_level": "debug",
        }

    @property
    def environment(self) -> dict[str, str]:
        files = {"CA": "ca", "CERT": "client", "KEY": "client-key"}
        return {**os.environ, **{f"KSP_TEST_{key}": self.path(name) for key, name in files.items()}}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    need_namespaces()
    new_files = Files(tmp_path_factory.mktemp("certificates"), trustme.CA())
    new_files.authority.cert_pem.write_to_path(new_files.path("ca"))
    new_files.issue("server", BOOTSTRAP, "*.kafka.example")
    new_files.issue("client", "client@kafka.example")
    (new_files.folder / "java.properties").write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={new_files.path('ca')}\nssl.keystore.location={new_files.path('client-both')}\n"
    )
    return new_files


@pytest.fixture(scope="module")
def kafka(kafka_39_three: Cluster) -> Cluster:
    return kafka_39_three


@pytest.fixture(scope="module")
def fleet(running: Running, kafka: Cluster, files: Files) -> list[Front]:
    """Two proxies with the same names and the same port, at two addresses."""
    port, *peers = free_ports(3)
    fronts = []
    for host, peer in zip(HOSTS, peers, strict=True):
        links = {"mode": "fleet", "peer": {"listen": f"{HOST}:{peer}", "secret": "of this fleet alone"}}
        settings = {"listen": f"{host}:{port}", "cluster": links}
        fronts.append(running.front(kafka.bootstrap, files.settings | settings))
        fronts[-1].port = port
    until(lambda: sum(map(owned, fronts)) == STATE_PARTITIONS and min(map(owned, fronts)) > 0, "an even share")
    return fronts


@pytest.fixture
def front(fleet: list[Front]) -> Front:
    return fleet[0]


@pytest.fixture(scope="module", params=["directly", "balanced"])
def way(request: pytest.FixtureRequest, fleet: list[Front], files: Files) -> Iterator[HostNames]:
    """The host names that lead to the first proxy, or to the load balancer in front of both."""
    folder, port = files.folder / request.param, fleet[0].port
    with ExitStack() as stack:
        host = HOST
        if request.param == "balanced":
            host = BALANCED_HOST
            targets = [Address(each, port) for each in HOSTS]
            stack.enter_context(load_balancer(folder, Address(host, port), targets))
        yield HostNames(folder, host, [BOOTSTRAP, *BROKERS])


@pytest.fixture
def run(way: HostNames, fleet: list[Front], files: Files) -> Callable[..., str]:
    """Return what a program prints that sees the names. The log names the program's own address."""

    def run_it(command: list[str], text: str | None = None) -> str:
        before = [len(each.log.read_text()) for each in fleet]
        environment = ["env", *(f"{key}={value}" for key, value in files.environment.items())]
        printed = output_of([*environment, *way.command(command)], text=text)

        def lines(event: str) -> list[dict[str, Any]]:
            logs = [each.log.read_text()[begin:].splitlines() for each, begin in zip(fleet, before, strict=True)]
            return [json.loads(line) for log in logs for line in log if f'"{event}"' in line]

        until(lambda: any(line["client"] == HOST for line in lines("connection-closed")), "the client to be logged")
        assert {line["client"] for line in lines("connection-closed")} <= {HOST, SOURCE}, "SOURCE for health checks"
        assert not [line for event in TROUBLE for line in lines(event)]
        return printed

    return run_it


@pytest.fixture
def topic(kafka: Cluster, fresh: Fresh) -> str:
    """A topic whose partitions have a leader on each node."""
    with Raw(kafka.bootstrap) as raw:
        return spread(raw, fresh("topic")).name


def bootstrap(front: Front) -> str:
    return f"{BOOTSTRAP}:{front.port}"


def python_client(front: Front, family: str, topic: str, group: str) -> list[str]:
    return [sys.executable, one_port_client.__file__, family, bootstrap(front), topic, group, str(RECORDS)]


@pytest.mark.parametrize("family", ["confluent", "kafka_python", "aiokafka"])
def test_python_clients(run: Callable[..., str], front: Front, topic: str, fresh: Fresh, family: str) -> None:
    """All brokers are known by name and with the one port."""
    shown = json.loads(run(python_client(front, family, topic, fresh("group"))))
    assert shown["seen"] == sorted(f"{family} {number}" for number in range(RECORDS))
    assert shown["brokers"] == [f"{name}:{front.port}" for name in BROKERS]


def java_options(front: Front, files: Files) -> list[str]:
    return ["--bootstrap-server", bootstrap(front), "--command-config", str(files.folder / "java.properties")]


@pytest.fixture
def share_group(run: Callable[..., str], front: Front, files: Files, fresh: Fresh) -> str:
    """A share group that begins at the start of the log."""
    group = fresh("share")
    entity = ["--alter", "--entity-type", "groups", "--entity-name", group]
    settings = ["--add-config", "share.auto.offset.reset=earliest,share.assignment.interval.ms=0"]
    run(java_command("kafka.admin.ConfigCommand", *java_options(front, files), *entity, *settings))
    return group


def test_java(run: Callable[..., str], front: Front, files: Files, topic: str, share_group: str, fresh: Fresh) -> None:
    """Producer, consumer and share consumer of Kafka's own tools, with PEM files."""
    lines = [f"line {number}" for number in range(RECORDS)]
    common = java_options(front, files)
    run(java_command("ConsoleProducer", *common, "--topic", topic), "".join(f"{line}\n" for line in lines))
    limits = ["--max-messages", str(RECORDS), "--timeout-ms", "90000"]
    reading = [*common, "--topic", topic, *limits]
    read = run(java_command("consumer.ConsoleConsumer", *reading, "--group", fresh("group"), "--from-beginning"))
    assert sorted(read.splitlines()) == sorted(lines)
    shared = run(java_command("consumer.ConsoleShareConsumer", *reading, "--group", share_group))
    assert sorted(shared.splitlines()) == sorted(lines)


def test_franz_go(run: Callable[..., str], front: Front, fresh: Fresh) -> None:
    shown = json.loads(run([str(built_with_go("franzgo")), bootstrap(front), fresh("run")]))
    assert (shown["produced"], shown["consumed"]) == (40, 40)
    assert shown["brokers"] in [f"{node}@{name}:{front.port}" for node, name in zip(NODES, BROKERS, strict=True)]


def test_a_share_group_of_librdkafka(run: Callable[..., str], front: Front, topic: str, share_group: str) -> None:
    """In a fleet, a member may reach each broker through another proxy."""
    shown = json.loads(run(python_client(front, "share", topic, share_group)))
    assert shown["seen"] == sorted(f"share {number}" for number in range(RECORDS))


def test_a_view(run: Callable[..., str], front: Front, topic: str, fresh: Fresh) -> None:
    shown = json.loads(run(python_client(front, "view", topic, fresh("group"))))
    assert shown["seen"] == sorted(f"view {number}" for number in range(RECORDS))


def refused(port: int, name: str | None, files: Files) -> str:
    """Return the alert that a client gets."""
    context = ssl.create_default_context(cafile=files.path("ca"))
    context.check_hostname = False
    with socket.create_connection((HOST, port), 10) as sock, pytest.raises(ssl.SSLError) as caught:
        context.wrap_socket(sock, server_hostname=name)
    return str(caught.value.reason)


@pytest.mark.parametrize("name", [None, "broker-9.kafka.example", "other.example"])
def test_a_client_without_a_known_name_gets_an_alert_and_the_log_says_what_to_do(
    front: Front, files: Files, name: str | None
) -> None:
    assert refused(front.port, name, files) == "TLSV1_UNRECOGNIZED_NAME"
    advice = f"let the client bootstrap from {BOOTSTRAP}:{front.port}, by this name and with TLS"
    words = "no TLS server name (SNI)" if name is None else f"unknown TLS server name '{name}'"

    def is_logged() -> bool:
        lines = (json.loads(line) for line in front.log.read_text().splitlines())
        refusals = [line for line in lines if line["event"] == "server-name-refused"]
        return any(line["reason"].startswith(f"{words}: {advice}") for line in refusals)

    until(is_logged, "the line")


def test_a_server_name_that_is_no_text_is_noted_as_any_other_trouble(front: Front) -> None:
    """Python's `ssl` would print a stack trace for each."""
    hello = client_hello(b"kafka\xff.example", b"kafka-.example")
    with socket.create_connection((HOST, front.port), 10) as sock:
        sock.sendall(hello)
        assert sock.recv(7)[5:] == b"\x02\x50", "a fatal alert: internal_error"
    until(lambda: '"exception-ignored"' in front.log.read_text(), "the line")
    assert "Traceback" not in front.log.read_text()


def client_hello(name: bytes, instead_of: bytes) -> bytes:
    """A ClientHello in which this name replaces another one of the same length."""
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(inbound, outbound, server_hostname=instead_of.decode())
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outbound.read()
    assert instead_of in hello
    return hello.replace(instead_of, name)


def connected(port: int, files: Files, name: str, client: str) -> ssl.SSLSocket:
    """A connection that a load balancer has made for a client."""
    context = ssl.create_default_context(cafile=files.path("ca"))
    context.load_cert_chain(files.path("client"), files.path("client-key"))
    sock = socket.create_connection((HOST, port), 10, source_address=(SOURCE, 0))
    sock.sendall(of_client(client))
    return context.wrap_socket(sock, server_hostname=name)


def test_connections_show_the_client_and_the_broker_of_its_name(front: Front, files: Files) -> None:
    with connected(front.port, files, BROKERS[1], CLIENT), connected(front.port, files, BOOTSTRAP, CLIENT):

        def shown() -> list[Mapping[str, Any]]:
            return list(json.loads(front.send_request(f"/connections/{CLIENT}")[1])["connections"])

        until(lambda: len(shown()) == 2, "both connections")
        assert {each["listener"] for each in shown()} == {"bootstrap", NODES[1]}


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n", "the PROXY protocol header is of version 1"),
        (b"\x16\x03\x01\x02\x00\x01", "the connection begins without a PROXY protocol header"),
    ],
)
def test_a_load_balancer_without_a_header_of_version_2_is_closed_and_logged(
    front: Front, sent: bytes, reason: str
) -> None:
    with socket.create_connection((HOST, front.port), 10, source_address=(SOURCE, 0)) as sock:
        sock.sendall(sent)
        with suppress(ConnectionResetError):  # with bytes that were not read
            assert sock.recv(1) == b""
    until(lambda: reason in front.log.read_text(), "the line")


def owned(front: Front) -> int:
    ready, text = front.send_request("/readyz/share-groups")
    return int(json.loads(text)["state_partitions"]) if ready else 0
