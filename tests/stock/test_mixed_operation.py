"""Workers, one port, PROXY protocol, TLS, denied APIs, new certificates and new workers, all at one proxy.

A member of a share group works through all of it, where the group is served by this proxy, by a fleet, or by brokers.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address

from tests.support.blocking_connection import Connection, build
from tests.support.brokers import OLD, Running
from tests.support.proxy_headers import of_client
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

BOOTSTRAP, BROKER = "kafka.example", "broker-1.kafka.example"
CLIENT = "192.0.2.7"
DRAIN_S, BEAT_S = 2, 0.1
REPEATED = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
"""Codes after which a client repeats its heartbeat. Its application sees none of them."""


class BehindBalancer(Connection):
    """A TLS connection of a client through a load balancer."""

    def __init__(self, port: int, authority: trustme.CA, server_name: str) -> None:
        super().__init__(Address(HOST, port), "mixed")
        context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        self._reader.close()
        self._socket.sendall(of_client(CLIENT))
        self._socket = context.wrap_socket(self._socket, server_hostname=server_name)
        self._reader = self._socket.makefile("rb")

    def call(self, key: ApiKey, version: int, **values: Any) -> Any:
        name = "".join(word.capitalize() for word in key.name.split("_"))
        return self.send_request(key, version, build(f"{name}Request", **values))


def issue(folder: Path, authority: trustme.CA) -> None:
    pair = authority.issue_cert(BOOTSTRAP, "*.kafka.example")
    (folder / "cert.pem").write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    (folder / "key.pem").write_bytes(pair.private_key_pem.bytes())


def settings(folder: Path, where: str) -> dict[str, Any]:
    fleet = {"mode": "fleet", "peer": {"listen": f"{HOST}:{free_ports(1)[0]}", "secret": "of this fleet alone"}}
    return {
        "workers": 2,
        "drain_s": DRAIN_S,
        "exposure": "sni",
        "first_port": None,
        "advertise": BOOTSTRAP,
        "broker_names": "broker-{id}.kafka.example",
        "client_tls": {"cert_file": str(folder / "cert.pem"), "key_file": str(folder / "key.pem")},
        "proxy_protocol": {"clients": [HOST]},
        "apis": {"deny": ["CreateTopics"]},
        "share_groups": {"serve": "upstream" if where == "brokers" else "local"},
        **({"cluster": fleet} if where == "fleet" else {}),
    }


class Member:
    """A member of a share group, which connects again if its connection ends."""

    def __init__(self, connect: Callable[[], BehindBalancer], group: str, topic: str) -> None:
        self._connect, self._group, self._topic = connect, group, topic
        self._member_id, self.epoch = str(uuid.uuid4()), 0
        self._connection: BehindBalancer | None = None
        self.connects = 0

    def beat(self) -> ErrorCode | None:
        """Return the code of a heartbeat. None if the connection ended."""
        try:
            if self._connection is None:
                self._connection = self._connect()
                self.connects += 1
            response = self._connection.call(
                ApiKey.SHARE_GROUP_HEARTBEAT,
                1,
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=self.epoch,
                rack_id=None,
                subscribed_topic_names=None if self.epoch else [self._topic],
            )
        except OSError:
            self.close()
            return None
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
        elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.epoch = 0  # clients join again, because a new owner does not know the members
        return ErrorCode.of(response.error_code)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def work(self, until_true: Callable[[], object], description: str) -> None:
        """Send heartbeats until the condition is true, and one succeeds after that."""

        def is_done() -> bool:
            time.sleep(BEAT_S)
            code = self.beat()
            assert code in (None, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, *REPEATED)
            return bool(until_true()) and code == ErrorCode.NONE

        until(is_done, description, 60)


def post(front: Front, path: str) -> int:
    connection = http.client.HTTPConnection(HOST, front.admin_port, timeout=60)
    connection.request("POST", path)
    status = connection.getresponse().status
    connection.close()
    return status


def pids(front: Front) -> set[int]:
    return set(json.loads(front.send_request("/livez")[1])["workers"].values())


@pytest.mark.parametrize("where", ["local", "fleet", "brokers"])
def test_a_member_works_while_certificates_and_workers_are_replaced(
    running: Running, fresh: Callable[[str], str], tmp_path: Path, where: str
) -> None:
    first, second = trustme.CA(), trustme.CA()
    trusted = [first]
    issue(tmp_path, first)
    kafka = running.native() if where == "brokers" else running.cluster(OLD)
    topic = fresh("mixed")
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(topic, 2)
    front = running.front(kafka.bootstrap, settings(tmp_path, where))
    member = Member(lambda: BehindBalancer(front.port, trusted[-1], BROKER), fresh("group"), topic)
    member.work(lambda: member.epoch, "the member to join")

    with closing(BehindBalancer(front.port, first, BOOTSTRAP)) as bootstrap:
        offered = {each.api_key for each in bootstrap.call(ApiKey.API_VERSIONS, 0).api_keys}
        assert ApiKey.CREATE_TOPICS not in offered
        (broker,) = bootstrap.call(ApiKey.METADATA, 12, topics=[], allow_auto_topic_creation=False).brokers
        assert (broker.host, broker.port) == (BROKER, front.port)
        listed = json.loads(front.send_request(f"/connections/{CLIENT}")[1])["connections"]
        assert {each["listener"] for each in listed} == {"bootstrap", broker.node_id}

    issue(tmp_path, second)
    trusted.append(second)
    member.work(lambda: shows(front, second), "the new certificate")
    assert member.connects == 1, "the connection stays"

    before = pids(front)
    with ThreadPoolExecutor(1) as pool:
        upgraded = pool.submit(post, front, "/upgrade")
        member.work(lambda: upgraded.done() and not pids(front) & before, "the workers before to end")
        assert upgraded.result() == http.HTTPStatus.OK
    assert member.connects == 2, "one reconnect"
    member.close()


def shows(front: Front, authority: trustme.CA) -> bool:
    try:
        BehindBalancer(front.port, authority, BOOTSTRAP).close()
    except ssl.SSLCertVerificationError:
        return False
    return True
