"""Forked proxies are as commands that were started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import installed_command

from tests.support import warm_proxies
from tests.support.raw import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="proxies are forked on Linux only")

RUN_S = 60.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KSP_")}


@pytest.fixture(scope="module")
def warm() -> Iterator[warm_proxies.WarmProcess]:
    process = warm_proxies.WarmProcess()
    yield process
    process.close()


def serving(warm: warm_proxies.WarmProcess, folder: Path) -> Child:
    """A proxy that waits for its cluster."""
    port, nowhere = free_ports(2)
    settings = ["--set", f"upstream.bootstrap={HOST}:{nowhere}", "--set", f"listen={HOST}:{port}"]
    child = warm_proxies.ForkedChild(warm, [*installed_command(), "serve", *settings], folder / "log", ENVIRONMENT)
    until(lambda: "starting" in child.output(), "the proxy to start")
    return child


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--version"], {}),
        (["serve", "--no-such-flag"], {}),
        (["serve"], {"KSP_UPSTREAM__BOOTSTRAP": "kafka:9092", "KSP_LISTEN": "no port"}),
    ],
)
def test_output_and_status_are_those_of_the_command(
    warm: warm_proxies.WarmProcess, tmp_path: Path, arguments: list[str], variables: dict[str, str]
) -> None:
    command, environment = [*installed_command(), *arguments], ENVIRONMENT | variables
    forked = warm_proxies.ForkedChild(warm, command, tmp_path / "forked", environment)
    started = Child(command, tmp_path / "started", environment)
    assert forked.wait(RUN_S) == started.wait(RUN_S)
    assert forked.output() == started.output() != ""


def test_a_signal_ends_it_and_the_status_says_which(warm: warm_proxies.WarmProcess, tmp_path: Path) -> None:
    stopped, killed = serving(warm, tmp_path), serving(warm, tmp_path)
    assert stopped.status is None
    assert stopped.stop() == 0
    killed.signal(signal.SIGKILL)
    assert killed.wait(RUN_S) == -9
    killed.signal(signal.SIGKILL)  # no process is left that could get it


def test_what_still_runs_is_told_and_ends_with_the_process_that_forked_it(tmp_path: Path) -> None:
    warm = warm_proxies.WarmProcess()
    left = serving(warm, tmp_path)
    assert warm.close() == [f"proxy {left.pid}"]
    until(lambda: not Path(f"/proc/{left.pid}").exists(), "the proxy to end")


def test_another_command_is_started_itself(tmp_path: Path) -> None:
    child = warm_proxies.launch([sys.executable, "-c", "print('hello')"], tmp_path / "log", ENVIRONMENT)
    assert (type(child), child.wait(RUN_S), child.output()) == (Child, 0, "hello")
