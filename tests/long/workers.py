"""Workers of one proxy that are replaced, and killed, while clients work.

    tests/run tests/long/workers.py -s                  # two minutes

Members of a share group on the stock Java client and a stock producer use the proxy. Nothing may be lost, and nothing
settled twice.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.changed_workers import KILL_S, RELOAD_S, kill_a_worker, replace_workers
from tests.support.group_at_work import GroupAtWork
from tests.support.rolling import Plan

PLAN = Plan(rate=300, partitions=6, members=4)
TIMES = int(os.environ.get("KSP_TEST_TIMES", "8"))
BEFORE_S = AFTER_S = 5.0


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    running = Running(tmp_path)
    kafka = running.cluster(OLD)
    yield running.front(kafka.bootstrap, {"workers": 2, "drain_s": 4})
    running.close()


def worked_through(front: Front, folder: Path, act: Callable[[int], None], every_s: float, label: str) -> GroupAtWork:
    """Return a group that worked while `act` was called TIMES times."""
    group = GroupAtWork(front.bootstrap, folder, PLAN)
    try:
        group.begin()
        group.work(BEFORE_S)
        for number in range(TIMES):
            act(number)
            group.work(every_s)
        group.work(AFTER_S)
        group.finish()
    except (AssertionError, TimeoutError):
        print(front.log.read_text(encoding="utf-8")[-20_000:])
        raise
    finally:
        group.kill()
    group.report(f"{TIMES} times {label}, every {every_s:g} s")
    return group


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_new_workers_for_changed_settings_lose_nothing_and_settle_nothing_twice(front: Front, tmp_path: Path) -> None:
    group = worked_through(front, tmp_path, partial(replace_workers, front), RELOAD_S, "all workers replaced")
    assert group.outcome.faults() == []
    assert front.stop() == 0


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_workers_lose_nothing_and_settle_nothing_twice(front: Front, tmp_path: Path) -> None:
    draw = random.Random(TIMES)

    group = worked_through(front, tmp_path, lambda _: kill_a_worker(front, draw), KILL_S, "one worker killed")
    assert group.outcome.faults() == []
    assert front.log.read_text().count("killed by SIGKILL") == TIMES
    assert front.stop() == 0
