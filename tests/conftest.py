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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
for entry in (str(CHECKOUT), str(CHECKOUT / "deploy")):
    if entry not in sys.path:
        sys.path.insert(0, entry)

pytest.register_assert_rewrite(
    "tests.oracle.items_fetch", "tests.oracle.items_groups", "tests.oracle.items_renew", "tests.support.worlds"
)

from localkafka.cluster import Cluster, Sasl  # noqa: E402 - found through the path set above
from localkafka.front import Front  # noqa: E402

from tests.support.worlds import warm_up  # noqa: E402

OLD, NEW = "3.9.1", "4.3.0"
"""The release without share groups, and the one that has them."""

QUICK = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.assignment.interval.ms": "0",
}
"""Bounds that let a lock end in a second, and members are assigned partitions at once; other defaults stay."""
TIGHT = QUICK | {"group.share.max.size": "2", "group.share.max.share.sessions": "2"}
"""Two members, two sessions."""
USERS = Sasl({"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}, super_user="admin")


class Running:
    """Starts clusters and proxies in folders of one test session, and shows their logs when a test fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._stack = ExitStack()
        self.logs: dict[str, Callable[[], str]] = {}

    def cluster(self, release: str, **options: Any) -> Cluster:
        name = f"kafka-{release}-{next(self._numbers)}"
        cluster = self._stack.enter_context(Cluster(release, self._folder / name, **options))
        self.logs[name] = cluster.logs
        return cluster

    def native(self, **options: Any) -> Cluster:
        """A cluster that serves share groups itself, ready for the first of them."""
        cluster = self.cluster(NEW, **options)
        warm_up(cluster.bootstrap)
        return cluster

    def front(self, upstream: str, settings: dict[str, Any] | None = None) -> Front:
        name = f"proxy-{next(self._numbers)}"
        front = Front(upstream, self._folder / name, settings)
        self.logs[name] = front.output
        return self._stack.enter_context(front)

    def close(self) -> None:
        self._stack.close()


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
    """A proxy that serves share groups in front of `kafka_39`, with Kafka's defaults."""
    return _session.front(kafka_39.bootstrap)


@pytest.fixture(scope="session")
def proxy_39_quick(_session: Running, kafka_39: Cluster) -> Front:
    """As `proxy_39`, and allows locks of a second."""
    return _session.front(kafka_39.bootstrap, {"share_groups": {"broker": QUICK}})


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
