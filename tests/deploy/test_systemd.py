"""The units in deploy/systemd, and ports that a service manager opens."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers.generation import END_S
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import installed_command

from tests.support.brokers import OLD, Running

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
ACTIVATE, VERIFY = shutil.which("systemd-socket-activate"), shutil.which("systemd-analyze")
LIMIT_S = 60.0


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys have capitals
    parser.read(UNITS / name)
    return parser


def test_the_service_gives_the_proxy_time_to_drain_and_ends_only_the_supervisor() -> None:
    service = unit("kafka-share-proxy.service")["Service"]
    assert float(service["TimeoutStopSec"]) > Config().drain_s + END_S
    assert service["KillMode"] == "mixed"


@pytest.mark.skipif(VERIFY is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    command = tmp_path / "kafka-share-proxy"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    for file in UNITS.iterdir():
        text = file.read_text().replace("/opt/kafka-share-proxy/bin/kafka-share-proxy", str(command))
        (tmp_path / file.name).write_text(text)
    files = [str(tmp_path / file.name) for file in UNITS.iterdir()]
    verified = subprocess.run([str(VERIFY), "verify", "--man=no", *files], capture_output=True, text=True, check=False)
    complaints = [line for line in verified.stderr.splitlines() if "kafka-share-proxy" in line]
    assert complaints == []


@pytest.mark.broker
@pytest.mark.skipif(ACTIVATE is None, reason="systemd-socket-activate is not installed")
@pytest.mark.parametrize("workers", [1, 2])
def test_clients_wait_at_ports_of_the_service_manager_until_the_proxy_serves(
    running: Running, tmp_path: Path, workers: int
) -> None:
    kafka = running.cluster(OLD)
    bootstrap, broker = free_ports(2)
    ports = [f"--listen={HOST}:{port}" for port in (bootstrap, broker)]
    node_id = kafka.nodes[0].node_id
    settings = {
        "upstream.bootstrap": kafka.bootstrap,
        "listen": f"{HOST}:{bootstrap}",
        "first_port": broker - node_id,
        "workers": workers,
        "drain_s": 1,
    }
    serve = [*installed_command(), "serve"]
    for name, value in settings.items():
        serve += ["--set", f"{name}={value}"]
    child = Child([str(ACTIVATE), *ports, *serve], tmp_path / "log")
    try:
        time.sleep(0.5)
        producer = Producer({"bootstrap.servers": f"{HOST}:{bootstrap}", "log_level": 0})
        failed: list[object] = []
        producer.produce("activated", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(LIMIT_S) == 0, child.output()
        assert failed == []
    finally:
        assert child.stop() == 0, child.output()
