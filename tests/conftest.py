"""Real brokers and proxies for the tests, started when the first test asks for them.

A broker or proxy is ended by its own handle; a process still there after the last test fails the run. Topics and groups
are a test's own: take their names from the fixture `fresh`.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
for entry in (str(CHECKOUT), str(CHECKOUT / "deploy")):
    if entry not in sys.path:
        sys.path.insert(0, entry)

pytest.register_assert_rewrite(
    "tests.oracle.items_deliveries",
    "tests.oracle.items_fetch",
    "tests.oracle.items_groups",
    "tests.oracle.items_renew",
    "tests.stock.three_nodes",
    "tests.support.worlds",
)

from localkafka.cluster import Cluster  # noqa: E402 - found through the path set above
from localkafka.front import Front  # noqa: E402

from tests.support.brokers import OLD, QUICK, Running  # noqa: E402


@pytest.fixture(scope="session")
def _session(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("brokers"))
    request.config.stash[_RUNNING].append(running)
    yield running
    running.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Running]:
    """For clusters and proxies that only one file of tests needs."""
    running = Running(tmp_path_factory.mktemp("brokers"))
    request.config.stash[_RUNNING].append(running)
    yield running
    request.config.stash[_RUNNING].remove(running)
    running.close()


@pytest.fixture(scope="session")
def kafka_39(_session: Running) -> Cluster:
    """One broker without share groups."""
    return _session.cluster(OLD)


@pytest.fixture(scope="session")
def kafka_43(_session: Running) -> Cluster:
    """One broker that serves share groups itself, with Kafka's defaults."""
    return _session.native()


@pytest.fixture(scope="session")
def kafka_43_quick(_session: Running) -> Cluster:
    """One broker that serves share groups itself, and allows locks of a second."""
    return _session.native(properties=QUICK)


@pytest.fixture(scope="session")
def proxy_39(_session: Running, kafka_39: Cluster) -> Front:
    """A proxy that serves share groups in front of `kafka_39`, with Kafka's defaults; their state is in its memory."""
    return _session.front(kafka_39.bootstrap, {"share_groups": {"state": "memory"}})


@pytest.fixture(scope="session")
def proxy_39_quick(_session: Running, kafka_39: Cluster) -> Front:
    """As `proxy_39`, allows locks of a second, and keeps share state in the cluster: only one proxy there may."""
    return _session.front(kafka_39.bootstrap, {"share_groups": {"state": "topic", "broker": QUICK}})


@pytest.fixture(scope="session")
def proxy_43(_session: Running, kafka_43: Cluster) -> Front:
    """A proxy in front of `kafka_43`; share groups are the broker's."""
    return _session.front(kafka_43.bootstrap)


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return a function that makes names no other test uses: fresh("topic")."""
    numbers = request.config.stash[_NAMES]
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    return lambda kind: f"{test}-{kind}-{next(numbers)}"


_RUNNING = pytest.StashKey[list[Running]]()
_NAMES = pytest.StashKey[Iterator[int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RUNNING] = []
    config.stash[_NAMES] = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show what brokers and proxies said lately below a test that failed."""
    report = yield
    if report.failed and "broker" in item.keywords:
        for running in item.config.stash[_RUNNING]:
            report.sections += [(f"log of {name}", log()) for name, log in running.logs.items()]
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process that outlives its test is a failure of the run."""
    left = {pid: command for pid in _children() if (command := _command(pid))}
    if left:
        print(f"\nprocesses left behind: {left}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task")
    if not tasks.exists():
        return []
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
