"""Histories of real runs: Java and confluent-kafka members of a share group, recorded on the wire, then judged.

The judge knows the semantics of KIP-932 and of key order only. It judges a native 4.3.0 broker, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import Running
from tests.support.history_judge import judge_program, verdict_of
from tests.support.recorded_run import HISTORY, Recorded, native, proxied, proxy_for_relays, run

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(900)]

Fresh = Callable[[str], str]
RECORDS = int(os.environ.get("KSP_LONG_RECORDS", "2000"))
EACH = int(os.environ.get("KSP_LONG_MEMBERS", "1"))
"""Members of each client."""


@pytest.fixture(scope="module")
def proxy(running: Running) -> Front:
    return proxy_for_relays(running)


def judged(recorded: Recorded, topic: str, folder: Path, fault: Callable[[int], None] | None = None) -> None:
    verdict = run(recorded, topic, RECORDS, EACH, folder, fault)
    assert verdict.faults == []
    assert verdict.undecided == []
    assert verdict.records >= RECORDS


def test_history_of_native_4_3_is_correct(running: Running, fresh: Fresh, tmp_path: Path) -> None:
    with native(running, fresh("group")) as recorded:
        judged(recorded, fresh("topic"), tmp_path)


def test_history_through_the_proxy_is_correct(proxy: Front, fresh: Fresh, tmp_path: Path) -> None:
    with proxied(proxy, fresh("group")) as recorded:
        judged(recorded, fresh("topic"), tmp_path)
    history = (tmp_path / HISTORY).read_text().replace('"keyed": false', '"keyed": true', 1)
    assert verdict_of(judge_program(), history).faulty, "records of one key were delivered in order without key order"


def test_history_with_key_order_is_correct(proxy: Front, fresh: Fresh, tmp_path: Path) -> None:
    with proxied(proxy, fresh("group"), **{"share.ordering": "key"}) as recorded:
        judged(recorded, fresh("topic"), tmp_path)


def test_history_with_key_order_is_correct_over_kill_9_of_the_proxy(proxy: Front, fresh: Fresh, tmp_path: Path) -> None:
    with proxied(proxy, fresh("group"), **{"share.ordering": "key"}) as recorded:

        def kill(left: int) -> None:
            if left < RECORDS * 2 // 3 and not recorded.recorder.failovers:
                started_ns = time.monotonic_ns()
                proxy.kill()
                proxy.start()
                recorded.recorder.failovers.append((started_ns, time.monotonic_ns()))

        judged(recorded, fresh("topic"), tmp_path, kill)
        assert recorded.recorder.failovers
