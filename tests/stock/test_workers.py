"""Several workers on the same ports, with stock clients, a real broker, and workers that end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.blocking_connection import Connection
from tests.support.brokers import OLD, QUICK, Running
from tests.support.raw import Raw, until
from tests.support.worlds import World

pytestmark = pytest.mark.broker

LIMIT_S = 30.0
CLIENTS = 24
"""Connections that the kernel spreads over two workers: 1 in 8 million runs puts all on one."""


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap, {"workers": 2, "share_groups": {"broker": QUICK}})


def read(front: Front, path: str) -> Any:
    ready, text = front.send_request(path)
    assert ready, text
    return json.loads(text)


def pids(front: Front) -> dict[str, int]:
    """Workers by number."""
    workers: dict[str, int] = read(front, "/livez")["workers"]
    return workers


def serving(front: Front) -> int:
    """Return the number of workers that are ready."""
    return sum(json.loads(front.send_request("/readyz")[1])["workers"].values())


def post(front: Front, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(HOST, front.admin_port, timeout=60)
    connection.request("POST", path)
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response.status, body


def change(front: Front, act: Callable[[dict[str, Any]], None]) -> None:
    """Change the settings file."""
    file = front.folder / "proxy.yaml"
    settings = yaml.safe_load(file.read_text())
    act(settings)
    file.write_text(yaml.safe_dump(settings))


def metric(front: Front, name: str) -> float:
    _, text = front.send_request("/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def workers_with_clients(front: Front) -> set[str]:
    """Open connections, and return the numbers of the workers that have accepted them."""
    clients = [socket.create_connection((HOST, front.port), timeout=5) for _ in range(CLIENTS)]
    try:
        until(lambda: metric(front, "ksp_connections ") >= CLIENTS, "all connections to be counted")
        return {str(line["worker"]) for line in read(front, "/connections")["connections"]}
    finally:
        for client in clients:
            client.close()


def test_clients_are_spread_over_the_workers_and_counted_together(front: Front) -> None:
    """Also after a worker was replaced, once it accepts its clients itself."""
    until(lambda: workers_with_clients(front) == set(pids(front)), "both workers to have clients")


def test_share_groups_of_all_workers_are_one_list_and_each_is_found(front: Front, fresh: Callable[[str], str]) -> None:
    groups = [fresh("group") for _ in range(8)]
    world = World("proxy", front.bootstrap, fresh("topic"))
    topic = world.topic()
    try:
        for group in groups:
            world.member(group, topics=[topic])
        until(lambda: {each["group"] for each in read(front, "/groups")["groups"]} >= set(groups), "all groups")
        lines = {each["group"]: each for each in read(front, "/groups")["groups"]}
        assert {str(lines[group]["worker"]) for group in groups} <= set(pids(front))
        assert read(front, "/groups")["elsewhere"] == []
        for group in groups:
            assert read(front, f"/groups/{group}")["group"] == group
        status, body = post(front, f"/groups/{groups[0]}/members/nobody/release")
        assert (status, "has no member" in body["reason"]) == (404, True)
    finally:
        world.close()


def test_a_killed_worker_is_replaced_under_its_number_and_no_record_is_lost(
    front: Front, fresh: Callable[[str], str]
) -> None:
    before, topic, failed = pids(front), fresh("topic"), []
    killed, other = before
    producer = Producer({"bootstrap.servers": front.bootstrap, "enable.idempotence": True})
    sent = 0
    end = time.monotonic() + 3
    while time.monotonic() < end:
        producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        sent += 1
        producer.poll(0.005)
        if sent == 100:
            os.kill(before[killed], signal.SIGKILL)
    assert producer.flush(LIMIT_S) == 0
    assert failed == []
    until(lambda: pids(front).get(killed) not in (None, before[killed]), "another worker of this number")
    assert pids(front)[other] == before[other]
    assert "killed by SIGKILL" in front.log.read_text()
    until(lambda: front.send_request("/readyz/share-groups")[0], "share groups to be served")


def test_a_worker_that_replaces_another_gets_connections_of_the_others_which_stay_open(front: Front) -> None:
    until(lambda: serving(front) == 2, "both workers")
    killed, other = pids(front)
    with Raw(front.bootstrap) as raw:
        (address,) = raw.brokers().values()
        connections = [raw.connect(address) for _ in range(CLIENTS)]

        def served() -> int:
            return sum(is_served(raw, connection) for connection in connections)

        def by_worker(*, bootstrap: bool = True) -> Counter[str]:
            lines = read(front, "/connections")["connections"]
            return Counter(str(line["worker"]) for line in lines if bootstrap or line["listener"] != "bootstrap")

        assert served() == CLIENTS
        connection_count, kept_clients = by_worker()[other], by_worker(bootstrap=False)[other]
        os.kill(pids(front)[killed], signal.SIGKILL)
        until(lambda: by_worker()[killed] == connection_count // 2, "half of the connections at the new worker")
        assert by_worker()[other] == connection_count - connection_count // 2
        assert served() == kept_clients
    until(lambda: front.send_request("/readyz/share-groups")[0], "share groups to be served")


def test_no_worker_has_all_connections_of_a_librdkafka_client(running: Running, fresh: Callable[[str], str]) -> None:
    """Clients of one client id on one host. Two brokers, so librdkafka is never without a connection to any broker."""
    front = running.front(running.cluster(OLD, nodes=2).bootstrap, {"workers": 2})
    producers = [Producer({"bootstrap.servers": front.bootstrap}) for _ in range(CLIENTS // 3)]

    def workers_by_broker() -> dict[str, set[int]]:
        workers: dict[str, set[int]] = {}
        for line in read(front, "/connections")["connections"]:
            workers.setdefault(str(line["listener"]), set()).add(line["worker"])
        workers.pop("bootstrap", None)
        return workers

    def is_divided() -> bool:
        for producer in producers:
            for partition in range(4):
                producer.produce(topic, b"x", partition=partition)
            producer.poll(0)
        by_broker = workers_by_broker()
        return len(by_broker) == 2 and all(len(each) == 1 for each in by_broker.values())

    topic = fresh("topic")
    try:
        with Raw(front.bootstrap) as raw:
            raw.create_topic(topic, 4)
        until(is_divided, "each broker to have one worker")
        assert set.union(*workers_by_broker().values()) == set(map(int, pids(front)))
        assert [producer.flush(LIMIT_S) for producer in producers] == [0] * len(producers)
        assert metric(front, "ksp_connections ") >= 2 * len(producers)
    finally:
        assert front.stop() == 0


def is_served(raw: Raw, connection: Connection) -> bool:
    try:
        raw.send_request("Metadata", 12, on=connection, topics=[], allow_auto_topic_creation=False)
    except OSError:
        return False
    return True


def test_counters_do_not_fall_when_a_worker_ends(front: Front) -> None:
    with socket.create_connection((HOST, front.port), timeout=5):
        until(lambda: metric(front, "ksp_connections ") >= 1, "the connection to be counted")
        before = metric(front, "ksp_connections_total")
        for pid in pids(front).values():
            os.kill(pid, signal.SIGKILL)
    until(lambda: len(pids(front)) == 2 and front.send_request("/readyz")[0], "both workers again")
    assert metric(front, "ksp_connections_total") >= before


def test_a_setting_that_is_applied_live_reaches_every_worker(front: Front) -> None:
    until(lambda: serving(front) == 2, "both workers")
    before = pids(front)
    change(front, lambda settings: settings.update(log_level="debug"))
    assert post(front, "/reload") == (200, {"changed": ["log_level"], "needs_restart": []})
    assert pids(front) == before
    change(front, lambda settings: settings.update(log_level="info"))
    post(front, "/reload")


def test_a_setting_that_needs_a_start_is_applied_by_new_workers_and_connections_are_served_until_then(
    front: Front, fresh: Callable[[str], str]
) -> None:
    before, failed = pids(front), []
    producer = Producer({"bootstrap.servers": front.bootstrap, "enable.idempotence": True})
    topic = fresh("topic")
    producer.produce(topic, b"before")
    assert producer.flush(LIMIT_S) == 0
    change(front, lambda settings: settings.update(unknown_apis="pass"))
    assert post(front, "/reload") == (200, {"changed": ["unknown_apis"], "needs_restart": []})
    after = pids(front)
    new = set(after) - set(before)
    assert len(new) == 2
    for number in range(100):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.01)
    assert producer.flush(LIMIT_S) == 0
    assert failed == []
    until(lambda: set(pids(front)) == new, "the workers before them to end")
    until(lambda: front.send_request("/readyz/share-groups")[0], "share groups to be served")


def test_connections_survive_an_upgrade(front: Front) -> None:
    """They move to the new workers with their sockets, so that clients see nothing."""
    before = pids(front)
    with Raw(front.bootstrap) as raw:
        addresses = raw.brokers()
        connections = [raw.kept(), *map(raw.connect, addresses.values())]
        for connection in connections:
            raw.send_request("Metadata", 12, on=connection, topics=[], allow_auto_topic_creation=False)
        assert post(front, "/upgrade")[0] == 200
        until(lambda: not set(pids(front)) & set(before), "the workers before them to end")
        for connection in connections:
            response = raw.send_request("Metadata", 12, on=connection, topics=[], allow_auto_topic_creation=False)
            assert {each.node_id for each in response.brokers} == set(addresses)


def test_a_mistake_in_the_settings_changes_nothing(front: Front) -> None:
    before = pids(front)
    change(front, lambda settings: settings.update(drain_s="soon"))
    status, body = post(front, "/reload")
    assert (status, "drain_s" in body["reason"]) == (422, True)
    change(front, lambda settings: settings.update(drain_s=2))
    assert pids(front) == before


def test_new_workers_that_cannot_start_leave_those_before_them(front: Front, fresh: Callable[[str], str]) -> None:
    before = pids(front)
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        change(front, lambda settings: settings.update(listen=f"{HOST}:{other.getsockname()[1]}"))
        status, body = post(front, "/reload")
    assert (status, "the workers before it continue" in body["reason"]) == (422, True)
    change(front, lambda settings: settings.update(listen=front.bootstrap))
    assert pids(front).items() >= before.items()
    producer = Producer({"bootstrap.servers": front.bootstrap})
    producer.produce(fresh("topic"), b"x")
    assert producer.flush(LIMIT_S) == 0


def test_workers_end_if_their_supervisor_is_killed(running: Running, kafka: Cluster, tmp_path: Path) -> None:
    elsewhere = {"share_groups": {"serve": "upstream"}, "commits": {"serve": False}}
    front = Front(kafka.bootstrap, tmp_path, {"workers": 2, "drain_s": 1, **elsewhere})
    front.start()
    workers = pids(front)
    front.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers.values()), "both workers to end")


def test_a_second_proxy_on_the_same_port_is_refused(front: Front, kafka: Cluster, tmp_path: Path) -> None:
    second = Front(kafka.bootstrap, tmp_path, {"workers": 2, "listen": front.bootstrap})
    with pytest.raises(Exception, match=f"cannot listen on {front.bootstrap}"):
        second.start()


def test_workers_keep_share_state_in_a_topic(kafka: Cluster, tmp_path: Path) -> None:
    front = Front(kafka.bootstrap, tmp_path, {"workers": 2, "share_groups": {"state": "memory"}})
    with pytest.raises(Exception, match=r"share_groups\.state.*must be topic in a fleet or with several workers"):
        front.start()
