"""Workers that are replaced every 5 s, and killed every 10 s, while clients of five families work.

    tests/run tests/long/rolling_reload.py -s            # seven minutes; KSP_TEST_SECONDS=60 for three

Java, confluent-kafka, franz-go, kafka-python and aiokafka produce idempotently with acks=all, use transactions,
consumer groups, a view, individual commits, and a share group of four members. Nothing acknowledged may be lost or
written twice, nothing settled twice, and no application may see an error. The same plain load through HAProxy (TCP),
reloaded as often, is the anchor, with one broker. The proxy has two: librdkafka looks up its bootstrap servers again,
in 1 to 2 s, once the connections to all brokers are closed, and with one broker one connection is all of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import yaml
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.changed_workers import KILL_S, RELOAD_S, kill_a_worker, replace_workers
from tests.support.clients_at_work import EVERY, PLAIN, ClientsAtWork, faults, values_in
from tests.support.group_at_work import GroupAtWork
from tests.support.raw import until
from tests.support.rolling import Plan

SECONDS = float(os.environ.get("KSP_TEST_SECONDS", "180"))
PLAN = Plan(rate=100, partitions=6, members=4)
NODES = 2
BEFORE_S = 5.0
TOPIC = "at-work"
HAPROXY = """\
global
    hard-stop-after 4s
defaults
    mode tcp
    timeout connect 5s
    timeout client 120s
    timeout server 120s
listen kafka
    bind {listen}
    server broker {target}
"""
"""Connections of before a reload are closed after 4 s, as with the `drain_s` of the proxy."""
pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(int(SECONDS) + 600)]


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    running = Running(tmp_path)
    kafka = running.cluster(OLD, nodes=NODES)
    yield running.front(kafka.bootstrap, {"workers": 2, "drain_s": 4})
    running.close()


def every(seconds: float, act: Callable[[int], None], meanwhile: Callable[[float], None] = time.sleep) -> int:
    """Call `act` at this interval for SECONDS. Return how often."""
    end, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        next_at = time.monotonic() + seconds
        act(number)
        number += 1
        meanwhile(max(next_at - time.monotonic(), 0.1))
    return number


def worked_through(front: Front, folder: Path, act: Callable[[int], None], seconds: float, label: str) -> int:
    """Let all clients work while `act` is called. Return how often it was."""
    group = GroupAtWork(front.bootstrap, folder, PLAN)
    clients = ClientsAtWork(front.bootstrap, folder / "clients", EVERY, TOPIC)
    try:
        clients.begin()
        group.begin()
        group.work(BEFORE_S)
        times = every(seconds, act, group.work)
        group.work(BEFORE_S)
        results = clients.finish()
        group.finish()
    except (AssertionError, TimeoutError):
        print(front.log.read_text(encoding="utf-8")[-20_000:])
        raise
    finally:
        group.kill()
        clients.kill()
    group.report(f"{times} times {label}, every {seconds:g} s")
    clients.report(f"clients, {label}", results)
    upstream = str(yaml.safe_load((front.folder / "proxy.yaml").read_text())["upstream"]["bootstrap"])
    assert group.outcome.faults() == []
    assert faults(results, values_in(upstream, TOPIC)) == []
    return times


def test_workers_replaced_every_5_s_lose_nothing_and_show_no_error(front: Front, tmp_path: Path) -> None:
    worked_through(front, tmp_path, partial(replace_workers, front), RELOAD_S, "all workers replaced")
    assert front.stop() == 0


def test_workers_killed_every_10_s_lose_nothing_and_show_no_error(front: Front, tmp_path: Path) -> None:
    draw = random.Random(1)
    times = worked_through(front, tmp_path, lambda _: kill_a_worker(front, draw), KILL_S, "one worker killed")
    assert front.log.read_text().count("killed by SIGKILL") == times
    assert front.stop() == 0


@contextmanager
def haproxy(folder: Path, port: int, target: str) -> Iterator[Child]:
    """HAProxy between clients and a broker that advertises its port."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        pytest.skip("HAProxy is not installed")
    config = folder / "haproxy.cfg"
    config.write_text(HAPROXY.format(listen=f"{HOST}:{port}", target=target))
    child = Child([program, "-W", "-db", "-f", str(config)], folder / "haproxy.log")
    try:
        until(lambda: _accepts(port), f"HAProxy to listen: {child.output()}")
        yield child
    finally:
        child.stop()


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), 1):
        return True
    return False


def test_haproxy_reloaded_every_5_s_is_the_anchor(tmp_path: Path) -> None:
    running = Running(tmp_path)
    (port,) = free_ports(1)
    try:
        kafka = running.cluster(OLD, relay_port=port)
        with haproxy(tmp_path, port, f"{HOST}:{kafka.nodes[0].relayed_port}") as child:
            clients = ClientsAtWork(f"{HOST}:{port}", tmp_path / "clients", PLAIN, TOPIC)
            try:
                clients.begin()
                times = every(RELOAD_S, lambda _: child.signal(signal.SIGUSR2))
                results = clients.finish()
            finally:
                clients.kill()
        clients.report(f"HAProxy reloaded {times} times, every {RELOAD_S:g} s", results)
        assert faults(results, values_in(kafka.bootstrap, TOPIC)) == []
    finally:
        running.close()
