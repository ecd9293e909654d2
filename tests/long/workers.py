"""Workers of one proxy that are replaced, and killed, while clients work.

    tests/run tests/long/workers.py -s                  # two minutes

Members of a share group on the stock Java client and a stock producer use the proxy. Nothing may be lost, and nothing
settled twice.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.group_at_work import GroupAtWork
from tests.support.rolling import Plan

PLAN = Plan(rate=300, partitions=6, members=4)
TIMES = int(os.environ.get("KSP_TEST_TIMES", "8"))
RELOAD_S, KILL_S = 5.0, 10.0
"""Seconds between two replacements of all workers, and between two kills of a worker."""
BEFORE_S = AFTER_S = 5.0


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    running = Running(tmp_path)
    kafka = running.cluster(OLD)
    yield running.front(kafka.bootstrap, {"workers": 2, "drain_s": 4})
    running.close()


def worker_pids(front: Front) -> list[int]:
    """Return the processes of the workers, without the spare one."""
    return list(json.loads(front.send_request("/livez")[1])["workers"].values())


def worked_through(front: Front, folder: Path, act: Callable[[int], None], every_s: float, what: str) -> GroupAtWork:
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
    group.report(f"{TIMES} times {what}, every {every_s:g} s")
    return group


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_new_workers_for_changed_settings_lose_nothing_and_settle_nothing_twice(front: Front, tmp_path: Path) -> None:
    def replace_workers(number: int) -> None:
        file = front.folder / "proxy.yaml"
        settings = yaml.safe_load(file.read_text())
        settings["limits"] = {"dial_timeout_s": 5 + number}
        file.write_text(yaml.safe_dump(settings))
        connection = http.client.HTTPConnection(HOST, front.admin_port, timeout=60)
        connection.request("POST", "/reload")
        response = connection.getresponse()
        assert response.status == http.HTTPStatus.OK, response.read()
        assert json.loads(response.read())["changed"] == ["limits.dial_timeout_s"]
        connection.close()

    group = worked_through(front, tmp_path, replace_workers, RELOAD_S, "all workers replaced")
    assert group.outcome.faults() == []
    assert front.log.read_text().count("workers-replaced") == TIMES
    assert front.stop() == 0


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_workers_lose_nothing_and_settle_nothing_twice(front: Front, tmp_path: Path) -> None:
    draw = random.Random(TIMES)

    def kill_one(_number: int) -> None:
        os.kill(draw.choice(worker_pids(front)), signal.SIGKILL)

    group = worked_through(front, tmp_path, kill_one, KILL_S, "one worker killed")
    assert group.outcome.faults() == []
    assert front.log.read_text().count("killed by SIGKILL") == TIMES
    assert front.stop() == 0
