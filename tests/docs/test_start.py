"""docs/start.md, step by step: its commands and programs, with a real broker of 3.9.1."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support import documents, shell_examples
from tests.support.raw import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

RUN_S = 60
IN_MEMORY = ["--set", "share_groups.state=memory", "--set", "commits.state=memory", "--set", "views.serve=false"]
"""State in memory: of the session's other proxies, one may keep its state in this cluster."""


@pytest.fixture
def own(kafka_39: Cluster, fresh: Callable[[str], str]) -> dict[str, str]:
    """Names of the page -> those of this test."""
    ports = free_ports(16)
    return {
        "localhost:9092": kafka_39.bootstrap,
        "localhost:19092": f"{HOST}:{ports[0]}",
        "localhost:19090": f"{HOST}:{ports[15]}",
        "workers": fresh("workers"),
        "orders": fresh("orders"),
    }


def with_own_names(text: str, own: dict[str, str]) -> str:
    for name, by in own.items():
        text = text.replace(name, by)
    return text


def command(containing: str, own: dict[str, str]) -> list[str]:
    (words,) = shell_examples.commands(with_own_names(documents.block(documents.START, "sh", containing), own), {})
    return shell_examples.runnable(words)


def run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def proxy(own: dict[str, str], tmp_path: Path) -> Iterator[Child]:
    child = Child([*command(" serve ", own), *IN_MEMORY], tmp_path / "proxy.log")
    yield child
    child.stop()


def test_two_workers_share_the_queue_and_the_group_is_shown(proxy: Child, own: dict[str, str], tmp_path: Path) -> None:
    until(lambda: " serving " in proxy.log.read_text(), f"the proxy serves: {proxy.log}")
    programs = {name: tmp_path / name for name in ("worker.py", "produce.py")}
    programs["worker.py"].write_text(with_own_names(documents.block(documents.START, "python", "ShareConsumer"), own))
    programs["produce.py"].write_text(with_own_names(documents.block(documents.START, "python", "Producer"), own))
    producer = Child([sys.executable, str(programs["produce.py"])], tmp_path / "produce.log")
    workers = [Child([sys.executable, str(programs["worker.py"])], tmp_path / f"worker-{n}.log") for n in range(2)]
    try:
        for worker in workers:
            until(lambda log=worker.log: "b'order " in log.read_text(), "each worker gets records", 60)
        shown = run(command(" groups ", own))
        assert own["workers"] in shown
        assert own["orders"] in shown
    finally:
        for child in (producer, *workers):
            child.kill()
    assert "created" in producer.log.read_text()
    lines = [line for worker in workers for line in worker.log.read_text().splitlines() if not line.startswith("%")]
    assert all(re.fullmatch(r"\d+ \d+ b'order \d+'", line) for line in lines), lines


@pytest.mark.parametrize("document", [documents.README, documents.INSTALL], ids=["readme", "install"])
def test_the_first_commands_check_the_cluster_and_start_a_proxy(
    document: Path, own: dict[str, str], tmp_path: Path
) -> None:
    """README.md and docs/install.md, as they are, except for the addresses of the machine."""
    bootstrap, listen, admin = own["localhost:9092"], own["localhost:19092"], own["localhost:19090"]
    by = {"kafka-1:9092": bootstrap, ",kafka-2:9092": f",{bootstrap}", "0.0.0.0:19092": listen, "proxy.example": HOST}
    by["127.0.0.1:19090"] = admin
    text = documents.block(document, "sh", "kafka-share-proxy serve")
    commands = shell_examples.commands(text, {name: other for name, other in by.items() if name in text})
    for words in commands:
        if words[1] == "check":
            assert listen in run(shell_examples.runnable(words))
    child = Child([*shell_examples.runnable(commands[-1]), *IN_MEMORY], tmp_path / "proxy.log")
    try:
        until(lambda: " serving " in child.log.read_text(), f"the proxy serves: {child.log}")
    finally:
        assert child.stop() == 0


def test_check_reports_the_cluster_and_changes_nothing(own: dict[str, str]) -> None:
    assert own["localhost:19092"] in run(command(" check ", own))


def test_the_cluster_in_memory_is_enough_for_the_proxy_to_serve_share_groups(tmp_path: Path) -> None:
    ports = free_ports(16)
    names = zip(("localhost:9092", "localhost:19092", "localhost:19090"), (ports[15], ports[0], ports[14]), strict=True)
    own = {name: f"{HOST}:{port}" for name, port in names}
    (option,) = re.findall(r"`(--set [^`]+)` to `serve`", documents.section(documents.START, "Without a Kafka"))
    target = Child(command("conformance target", own), tmp_path / "target.log")
    try:
        until(lambda: '"bootstrap"' in target.log.read_text(), f"the target serves: {target.log}")
        proxy = Child([*command(" serve ", own), *option.split()], tmp_path / "proxy.log")
        try:
            until(lambda: "share-state-loaded" in proxy.log.read_text(), f"share groups are served: {proxy.log}")
        finally:
            assert proxy.stop() == 0
    finally:
        target.kill()
