"""Behaviour with a cluster of three nodes; test_three_nodes_*.py run it on each release."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import product
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.definitions import registry

from tests.support.blocking_connection import Connection, build
from tests.support.brokers import OLD
from tests.support.dialled import DialledPorts
from tests.support.raw import BROKER_RESOURCE, GROUP_RESOURCE, LIMIT_S, Raw, Topic, until
from tests.support.worlds import World

NODES = (1, 2, 3)
PAUSE_S = 0.004
"""Between two records: the load continues while a leader is down."""
RECOVER_S = 180


def spread(raw: Raw, name: str) -> Topic:
    """Create a topic whose partition N-1 is led by node N, on all nodes."""
    return raw.create_topic(name, assignments={n - 1: [n, *(m for m in NODES if m != n)] for n in NODES})


def records_come_from_their_leaders(w: World, name: str) -> None:
    """Item 5: each node serves the partitions it leads."""
    t = w.label_topic(spread(w.raw, name))
    for index in t.leaders:
        w.raw.produce(t, 10, partition=index)
    g = w.group(f"{name}-g")
    w.member(g, topics=[t])
    for index, node in t.leaders.items():
        response = w.member(g, f"at{node}", node=node).take((t, index))
        assert response.acquired(t, index) == [(0, 9, 1)]


def other_nodes_name_the_leader(w: World, name: str) -> None:
    """Item 2: a follower returns 6 with the leader and its address."""
    t = w.label_topic(spread(w.raw, name))
    w.raw.produce(t, 1, partition=1)
    g = w.group(f"{name}-g")
    w.member(g, topics=[t])
    response = w.member(g, "B", node=1).fetch((t, 1))
    part = response.part(t, 1)
    assert (response.error, part.error_code, response.lock_ms) == (0, 6, 30_000)
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 0)
    endpoints = {each.node_id: (each.host, each.port) for each in response.message.node_endpoints}
    assert endpoints == {2: tuple(w.raw.node(2))}


class Load:
    """A producer at work, a classic consumer and two share consumers reading, until stopped."""

    def __init__(self, front: Front, topic: str, group: str, dialled: DialledPorts) -> None:
        self.acknowledged: set[str] = set()
        self.failed: list[str] = []
        self.consumed: set[str] = set()
        self.shared: set[str] = set()
        self.problems: list[str] = []
        self._settings = {"bootstrap.servers": front.bootstrap, "log_level": 7, **dialled.settings}
        self._topic, self._group = topic, group
        self._enough, self._finished = threading.Event(), threading.Event()
        readers = [self._consume, self._share, self._share]
        self._threads = [threading.Thread(target=self._guard, args=(each,), daemon=True) for each in readers]
        self._producing = threading.Thread(target=self._guard, args=(self._produce,), daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in (*self._threads, self._producing):
            thread.start()
        try:
            yield
        finally:
            self._enough.set()
            self._finished.set()
            for thread in (*self._threads, self._producing):
                thread.join(LIMIT_S)

    def finish_producing(self) -> None:
        self._enough.set()
        self._producing.join(RECOVER_S)
        assert not self._producing.is_alive(), "the producer did not end"

    def _guard(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.problems.append(f"{work.__name__}: {type(error).__name__} {error}")

    def _produce(self) -> None:
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 5})
        number = 0
        while not self._enough.is_set():
            value = f"{number}"
            producer.produce(self._topic, value, partition=number % 3, on_delivery=self._delivered)
            producer.poll(0)
            number += 1
            time.sleep(PAUSE_S)
        left = producer.flush(RECOVER_S)
        assert left == 0, f"{left} records are not acknowledged"

    def _delivered(self, error: Any, message: Any) -> None:
        value = message.value().decode()
        if error is None:
            self.acknowledged.add(value)
        else:
            self.failed.append(f"{value}: {error}")

    def _consume(self) -> None:
        consumer = Consumer({**self._settings, "group.id": f"{self._group}-classic", "auto.offset.reset": "earliest"})
        consumer.subscribe([self._topic])
        try:
            while not self._finished.is_set():
                for message in consumer.consume(500, 0.2):
                    if message.error() is None:
                        self.consumed.add(message.value().decode())
        finally:
            consumer.close()

    def _share(self) -> None:
        with ExitStack() as stack:
            consumer = stack.enter_context(ShareConsumer({**self._settings, "group.id": self._group}))
            consumer.subscribe([self._topic])
            while not self._finished.is_set():
                with suppress(KafkaException):  # what went wrong for a batch: its records come again
                    self.shared |= {m.value().decode() for m in consumer.poll(0.2) if m.error() is None}


def nothing_is_lost_when_a_leader_dies(
    kafka: Cluster, front: Front, name: str, choose: Callable[[str], int] | None = None
) -> None:
    """Every acknowledged record is read by both kinds of groups, and no client ever dials a broker itself.

    `choose` says which node dies, given the share group; else one that leads a partition and does not coordinate it.
    """
    with Raw(front.bootstrap) as raw:
        topic = spread(raw, name)
        raw.configure_group(f"{name}-g", {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"})
    victim = kafka.node((choose or partial(_not_the_coordinator, front))(f"{name}-g"))
    with DialledPorts() as dialled:
        load = Load(front, topic.name, f"{name}-g", dialled)
        with load.running():
            until(lambda: len(load.consumed) > 100 and len(load.shared) > 100, "the load to flow")
            victim.kill()
            before = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > before + 500, "records after the leader died", RECOVER_S)
            load.finish_producing()
            until(lambda: load.acknowledged <= load.consumed, "the classic group", RECOVER_S)
            until(lambda: load.acknowledged <= load.shared, "the share group", RECOVER_S)
        assert (load.failed, load.problems) == ([], [])
    upstream = {port for node in kafka.nodes for port in (node.port, node.internal_port, node.controller_port)}
    assert dialled.ports & upstream == set()
    assert {front.first_port + node for node in NODES} <= dialled.ports
    victim.start()
    kafka.wait_ready()


def _not_the_coordinator(front: Front, group: str) -> int:
    with Raw(front.bootstrap) as raw:
        return next(node for node in NODES if node != raw.coordinator(group).port - front.first_port)


def listeners_follow_the_brokers(kafka: Cluster, front: Front) -> None:
    """The listener of a broker that left closes after a grace time, and opens again when it is back."""
    node = kafka.node(3)
    port = front.first_port + node.node_id
    node.stop()
    until(lambda: not _listens(port), "the listener to close")
    with Raw(front.bootstrap) as raw:
        assert sorted(raw.brokers()) == [1, 2]
        node.start()
        kafka.wait_ready()
        until(lambda: raw.brokers().get(3, ("", 0))[1] == port, "the broker to be named again")
    assert _listens(port)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def no_setting_of_a_broker_names_it(kafka: Cluster, front: Front) -> None:
    """DescribeConfigs of every broker, by its own listener and the bootstrap listener, alone and next to a group."""
    ports = [b":%d" % port for n in kafka.nodes for port in (n.port, n.internal_port, n.controller_port)]
    with Raw(kafka.bootstrap) as native, Raw(front.bootstrap) as raw:
        requested = ((native, NODES), (raw, NODES), (raw, (None,)))
        for side, listeners in requested:
            for node, version, beside in product(listeners, (1, 4), ([], [(GROUP_RESOURCE, "g")])):
                connection = side.kept(None if node is None else side.node(node))
                expected = [(BROKER_RESOURCE, str(each)) for each in ((node,) if node else NODES)] + beside
                response = _settings(connection, version, expected)
                encoded = registry.response(32, version).encode(response)
                named_ports = {port for port in ports if port in encoded}
                if side is native:
                    assert named_ports or (beside and kafka.release == OLD), "the test looks for what is not there"
                else:
                    assert not named_ports
        for node, address in raw.brokers().items():
            shown = raw.describe(BROKER_RESOURCE, str(node), on=raw.kept(address))
            assert shown["advertised.listeners"] == ",".join(
                f"{name}://{address.host}:{address.port}" for name in ("CLIENT", "INTERNAL")
            )
            assert shown["controller.quorum.voters"] is None
            assert shown["controller.listener.names"] == "CONTROLLER"


def _settings(connection: Connection, version: int, expected: list[tuple[int, str]]) -> Any:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in expected]
    more = {"include_documentation": True} if version >= 3 else {}
    return connection.send_request(
        32, version, build("DescribeConfigsRequest", resources=resources, include_synonyms=True, **more)
    )
