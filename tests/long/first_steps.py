"""docs/start.md and docs/testing.md as a stranger follows them, with the wheel, an empty home and an empty folder.

    tests/run tests/long/first_steps.py -s

Commands and programs run as they are on the page, except for the addresses. Only the settings of pip are kept. Two
minutes; prints how long it took from the first command to the first record, and to the result of the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child

from tests.docs.test_start import own as own
from tests.docs.test_start import with_own_names
from tests.support import distributions, documents
from tests.support.raw import until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

STEP_S = 400
SYSTEM = "/usr/bin:/bin"
KEPT = ("PIP_", "SSL_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Beginnings of variables that pip needs to reach its index here."""


class Stranger:
    """A person in an empty folder, who copies from the page."""

    def __init__(self, folder: Path, own: dict[str, str]) -> None:
        self.folder, self._own = folder, own
        home = folder / "home"
        home.mkdir()
        base = Path(getattr(sys, "_base_executable", sys.executable)).parent
        inherited_variables = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        self._environment = {**inherited_variables, "HOME": str(home), "PATH": f"{base}{os.pathsep}{SYSTEM}"}

    def has_installed(self) -> None:
        """Continue in the environment: the third command of the page."""
        self._environment["PATH"] = f"{self.folder}/ksp/bin{os.pathsep}{self._environment['PATH']}"

    def block(self, language: str, containing: str, document: Path = documents.START) -> str:
        return with_own_names(documents.block(document, language, containing), self._own)

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", script], cwd=self.folder, env=self._environment,
            capture_output=True, text=True, timeout=STEP_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, script: str, log: str) -> Child:
        """Run in another terminal."""
        command = ["env", "-i", *(f"{name}={value}" for name, value in self._environment.items())]
        return Child([*command, "bash", "-c", f"cd {self.folder} && exec {script.strip()}"], self.folder / log)


@pytest.fixture
def stranger(tmp_path: Path, own: dict[str, str]) -> Stranger:
    """Someone who has downloaded the wheel."""
    folder = tmp_path / "downloads"
    distributions.wheel(distributions.copied(tmp_path / "source"), folder)
    return Stranger(folder, own)


def has_orders(log: Path) -> bool:
    return re.search(r"^\d+ 1 b'order \d+'$", log.read_text(), re.MULTILINE) is not None


def test_a_stranger_with_the_wheel_is_at_work_by_the_page_alone(stranger: Stranger, own: dict[str, str]) -> None:
    began = time.monotonic()
    environment, _, path = stranger.block("sh", "bin/pip install .").strip().splitlines()
    assert path == 'export PATH="$PWD/ksp/bin:$PATH"'
    stranger.run(environment)
    stranger.run(stranger.block("sh", "kafka_share_proxy-*.whl"))
    stranger.has_installed()
    installed_s = time.monotonic() - began
    assert own["localhost:19092"] in stranger.run(stranger.block("sh", "kafka-share-proxy check"))
    for name, containing in (("worker.py", "ShareConsumer("), ("produce.py", "AdminClient(")):
        (stranger.folder / name).write_text(stranger.block("python", containing))
    with ExitStack() as terminals:

        def start(script: str, log: str) -> Path:
            child = stranger.start(script, log)
            terminals.callback(child.kill)
            return child.log

        serving = start(stranger.block("sh", "kafka-share-proxy serve"), "serve.log")
        until(lambda: " serving " in serving.read_text(), f"the proxy serves: {serving}")
        workers = [start("python worker.py", f"worker-{number}.log") for number in range(2)]
        start("python produce.py", "produce.log")
        for worker in workers:
            until(partial(has_orders, worker), "records", 60)
        print(f"installed after {installed_s:.0f} s, the first records after {time.monotonic() - began:.0f} s")
        assert own["workers"] in stranger.run(stranger.block("sh", "groups workers"))
        with urllib.request.urlopen(f"http://{own['localhost:19090']}/status", timeout=10) as page:
            assert own["workers"] in page.read().decode()


def test_a_stranger_tests_an_application_by_the_page_alone(stranger: Stranger) -> None:
    """An expired lock and a coordinator that moves, with threads and with Trio; then the suite against a cluster."""
    began = time.monotonic()
    stranger.run(stranger.block("sh", "[testing]", documents.TESTING))
    for number, code in enumerate(documents.blocks(documents.TESTING, "python")):
        (stranger.folder / f"test_worker_{number}.py").write_text(code)
    assert "3 passed" in stranger.run("tests-env/bin/pytest test_worker_0.py")
    stranger.run("tests-env/bin/pip install pytest-trio")
    assert "4 passed" in stranger.run("tests-env/bin/pytest -o trio_mode=true")
    print(f"tests of an application pass after {time.monotonic() - began:.0f} s")


def test_a_stranger_tests_a_cluster_by_the_page_alone(stranger: Stranger) -> None:
    """The commands of docs/conformance.md, at the cluster in one process that the page starts."""
    environment, *_ = stranger.block("sh", "bin/pip install .").strip().splitlines()
    stranger.run(environment)
    stranger.run(stranger.block("sh", "kafka_share_proxy-*.whl"))
    stranger.has_installed()
    (port,) = free_ports(1)
    serve, _, _ = documents.block(documents.CONFORMANCE, "sh", "conformance target").partition("#")
    target = stranger.start(f"{serve.strip()} --listen {HOST}:{port}", "target.log")
    try:
        until(lambda: '"bootstrap"' in target.log.read_text(), f"the target serves: {target.log}")
        text = documents.block(documents.CONFORMANCE, "sh", "--suite share-groups")
        printed = stranger.run(text.replace("localhost:9092", f"{HOST}:{port}"))
    finally:
        target.kill()
    assert "share-groups.renew" in printed
    assert {path.suffix for path in stranger.folder.glob("report.*")} == {".html", ".xml", ".json"}
