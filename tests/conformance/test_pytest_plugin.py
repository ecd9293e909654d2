"""The fixtures, in a run of pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PLUGIN = "kafka_share_proxy.conformance.pytest_plugin"
TESTS = """
import pytest
from confluent_kafka import Producer
from kafka_share_proxy.wire.definitions import messages

@pytest.mark.kafka_cluster(nodes=2, seed=7)
@pytest.mark.kafka_topic(partitions=3)
def test_a_topic_in_a_cluster(kafka_cluster, kafka_topic):
    state = kafka_cluster.state()
    assert len(state["nodes"]) == 2
    assert [(topic["name"], len(topic["partitions"])) for topic in state["topics"]] == [(kafka_topic, 3)]

def test_a_fault(kafka_cluster, kafka_topic, kafka_faults):
    number = kafka_faults.add(api="Produce", error="NOT_ENOUGH_REPLICAS", count=1)
    delivered = []
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap, "retry.backoff.ms": 10})
    producer.produce(kafka_topic, b"v", on_delivery=lambda error, message: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None]
    assert kafka_faults.applied(number) == 1

def test_that_fails(kafka_cluster):
    import socket
    from kafka_share_proxy.wire.codec import frames
    host, port = kafka_cluster.bootstrap.split(",")[0].split(":")
    request = messages.HeartbeatRequest(group_id="", generation_id=1, member_id="m")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(frames.request(12, 4, 1, "c", request))
        assert connection.recv(1)
    kafka_cluster.check_findings()

async def test_with_trio(async_kafka_cluster):
    import trio
    host, port = async_kafka_cluster.cluster.addresses[1]
    async with await trio.open_tcp_stream(host, port):
        pass
"""


def run(folder: Path, *flags: str) -> str:
    """Return the output of a run with this plugin, whether or not the checkout is installed."""
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "--strict-markers", *flags]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=alone)
    return done.stdout + done.stderr


def test_the_fixtures_give_tests_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(TESTS)
    output = run(tmp_path, "-p", "pytest_trio.plugin", "-o", "trio_mode=true")
    assert "3 passed" in output, output
    assert "1 failed" in output
    assert "error group-id-empty: GroupId is ''" in output


def test_the_plugin_loads_only_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(
        "import sys\n"
        "def test_nothing_is_loaded():\n"
        f"    assert {PLUGIN!r} in sys.modules\n"
        "    loaded = [name for name in sys.modules if name.startswith('kafka_share_proxy.')]\n"
        "    assert [name for name in loaded if 'target' in name or 'wire' in name] == []\n"
    )
    output = run(tmp_path)
    assert "1 passed" in output, output


def test_the_distribution_registers_the_plugin() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"kafka_share_proxy": PLUGIN}
    assert any(requirement.startswith("pytest") for requirement in project["optional-dependencies"]["testing"])
