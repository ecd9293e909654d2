"""Real brokers and proxies for the tests, started when the first test needs them.

A broker or proxy is ended by its own handle; a process still there after the last test fails the run. Topics and groups
are a test's own: take their names from the fixture `fresh`.

Several processes share the whole run (tests/support/sharing.py), which leaves out some tests
(tests/support/left_out.py).
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

CHECKOUT = Path(__file__).resolve().parent.parent
for entry in (str(CHECKOUT), str(CHECKOUT / "proxy")):
    if entry not in sys.path:
        sys.path.insert(0, entry)

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")  # examples that are slow because other processes work are no failures

pytest.register_assert_rewrite(
    "tests.oracle.items_deliveries",
    "tests.oracle.items_fetch",
    "tests.oracle.items_groups",
    "tests.oracle.items_renew",
    "tests.stock.three_nodes",
    "tests.support.worlds",
)

from kafka_share_proxy.localkafka.cluster import Cluster  # noqa: E402 - found through the path set above
from kafka_share_proxy.localkafka.front import Front  # noqa: E402

from tests.support import known_constants, leaks, warm_proxies, worker_reports  # noqa: E402
from tests.support.brokers import NEWEST, OLD, QUICK, Running  # noqa: E402
from tests.support.child_processes import children  # noqa: E402
from tests.support.left_out import is_left_out  # noqa: E402
from tests.support.sharing import group_of, rank_of  # noqa: E402
from tests.support.worlds import warm_up  # noqa: E402


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
def kafka_39_three(_session: Running) -> Cluster:
    """Three brokers without share groups. Proxies in front of it are those of one file at a time."""
    return _session.cluster(OLD, nodes=3)


@pytest.fixture(scope="session")
def kafka_43(_session: Running) -> Cluster:
    """One broker that serves share groups itself, with Kafka's defaults."""
    return _session.native()


@pytest.fixture(scope="session")
def kafka_43_quick(_session: Running) -> Cluster:
    """One broker that serves share groups itself, and allows locks of a second."""
    return _session.native(properties=QUICK)


@pytest.fixture(scope="session")
def kafka_44(_session: Running) -> Cluster:
    """One broker that serves share groups itself, writes dead letters, and allows locks of a second."""
    cluster = _session.cluster(NEWEST, properties=QUICK, features=["share.version=2"])
    warm_up(cluster.bootstrap)
    return cluster


@pytest.fixture(scope="session")
def proxy_39(_session: Running, kafka_39: Cluster) -> Front:
    """A proxy that serves share groups in front of `kafka_39`, with Kafka's defaults; their state is in its memory."""
    return _session.front(kafka_39.bootstrap, {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}})


@pytest.fixture(scope="session")
def proxy_39_quick(_session: Running, kafka_39: Cluster) -> Front:
    """Same as `proxy_39`, allows locks of a second, and keeps share state in the cluster. At most one such proxy may
    exist.
    """
    return _session.front(kafka_39.bootstrap, {"share_groups": {"state": "topic", "broker": QUICK}})


@pytest.fixture(scope="session")
def proxy_43(_session: Running, kafka_43: Cluster) -> Front:
    """A proxy in front of `kafka_43`; share groups are the broker's, and no state is in the cluster."""
    return _session.front(kafka_43.bootstrap, {"commits": {"state": "memory"}})


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Return a function that makes names no other test uses: fresh("topic")."""
    numbers = request.config.stash[_NAMES]
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    return lambda kind: f"{test}-{kind}-{next(numbers)}"


@pytest.hookimpl(trylast=True)  # Hypothesis lets nothing use its folder before
def pytest_sessionstart(session: pytest.Session) -> None:
    """Import a part of the tests if several processes share the run: the others need not compile that part again.
    The same for constants that Hypothesis finds.

    Each process imports all of them afterwards. What raises here raises there again, and is reported.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or not session.config.getoption("loadgroup", False):
        return
    files = sorted((CHECKOUT / "tests").rglob("test_*.py"))
    part, parts = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for file in files[part::parts]:
        with contextlib.suppress(Exception, pytest.skip.Exception), warnings.catch_warnings():
            warnings.simplefilter("error")  # as in pyproject.toml
            importlib.import_module(".".join(file.relative_to(CHECKOUT).with_suffix("").parts))
    known_constants.keep(part, parts)


def pytest_itemcollected(item: pytest.Item) -> None:
    """See tests/support/left_out.py and tests/support/sharing.py."""
    file = item.nodeid.partition("::")[0]
    if is_left_out(file, item.name):
        item.add_marker(pytest.mark.long)
    if item.get_closest_marker("xdist_group") is None:
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        group = group_of(file, getattr(item, "fixturenames", ()), parameters, "broker" in item.keywords)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests by group if several processes share the run."""
    if not config.getoption("loadgroup", False):
        return
    if any("@" not in item.nodeid for item in items):
        raise pytest.UsageError("this pytest-xdist and this pytest do not agree about groups (see pyproject.toml)")
    items.sort(key=lambda item: rank_of(_group(item), item.keywords))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End what the tests of a group share, after the last of them: idle brokers take CPU, too.

    pytest has no public function for it; it does the same after the last test of a session.
    """
    if nextitem is not None and _group(item) != _group(nextitem):
        item.session._setupstate.teardown_exact(None)


def _group(item: pytest.Item) -> str:
    """Return the group of a test; "" if one process runs all tests."""
    return item.nodeid.rpartition("@")[2] if item.config.getoption("loadgroup", False) else ""


_RUNNING = pytest.StashKey[list[Running]]()
_NAMES = pytest.StashKey[Iterator[int]]()
_LEFT = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RUNNING] = []
    config.stash[_NAMES] = itertools.count(1)
    config.stash[_LEFT] = []
    config.pluginmanager.register(leaks)
    config.pluginmanager.register(worker_reports)


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
    config = session.config
    commands = (_command(pid) for pid in children(os.getpid()))
    left = [*config.stash[_LEFT], *warm_proxies.close(), *filter(None, commands)]
    if hasattr(config, "workeroutput"):
        config.workeroutput["left"] = left
    if left:
        print(f"\nprocesses left behind: {left}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect what a worker process left running when it ended, because its exit status is not checked elsewhere."""
    node.config.stash[_LEFT] += getattr(node, "workeroutput", {}).get("left", [])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
