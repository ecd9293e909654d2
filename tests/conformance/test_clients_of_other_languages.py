"""Stock clients in Java, Go and JavaScript at the command `conformance target`, with the judge.

The findings are those of docs/conformance-results.md. A new one is either a fault of the client, and is added there
with its reproduction, or a fault of the rule.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.test_stock_clients import FAULTS
from tests.support.java_programs import java_program
from tests.support.programs import CLIENTS, QUICK_BUILD, built, built_with_go, need, output_of
from tests.support.target_process import CONTROL, TargetProcess, target_process

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

JAVA = ("3.9.1", "4.3.0", "clients-4.4.0")
SHARE_JAVA = ("4.3.0", "clients-4.4.0")
OWN_SUITES = (
    "TestGroupETL",
    "TestTxnEtl",
    "TestShareGroupETL",
    "TestShareGroupAckOnClose",
    "TestShareGroupOffsetsAdmin",
)
"""Tests of franz-go that use a cluster's groups, transactions and share groups."""
SUITE_RECORDS = 1_000


@pytest.fixture
def target() -> Iterator[TargetProcess]:
    with target_process(*CONTROL, "--topic", "t:3", "--topic", "one") as started:
        yield started
        assert started.process.poll() is None


# Java


def java(name: str, release: str, *arguments: str) -> list[str]:
    return output_of([*java_program(name, release), *arguments]).splitlines()


@pytest.mark.parametrize("release", JAVA)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_consumers_divide_the_partitions_of_a_group(target: TargetProcess, release: str, protocol: str) -> None:
    assert java("TargetClient", release, target.bootstrap, "t", "group", protocol) == [
        "read: 30",
        "committed: {0=10, 1=10, 2=10}",
        "assigned: [1, 2]",
    ]
    assert target.rules() == set()


@pytest.mark.parametrize("release", JAVA)
def test_java_transactions_commit_and_abort(target: TargetProcess, release: str) -> None:
    assert java("TargetClient", release, target.bootstrap, "t", "transactions") == [
        "source: [source]",
        "offset: 1",
        "read committed: [committed]",
        "read uncommitted: [aborted, committed]",
    ]
    assert target.rules() == set()


@pytest.mark.parametrize("release", JAVA)
def test_java_admin_changes_topics_and_groups(target: TargetProcess, release: str) -> None:
    assert java("TargetClient", release, target.bootstrap, "t", "admin") == [
        "nodes: 3",
        "partitions: 2",
        "end: 2",
        "start: 1",
        "config: 2000",
        "committed: 2",
        "groups: [t-admin]",
        "topics: []",
    ]
    assert target.rules() == set()


@pytest.mark.parametrize("release", SHARE_JAVA)
def test_java_share_consumers_acknowledge_renew_and_lose_a_lock(target: TargetProcess, release: str) -> None:
    target.earliest("one-share")
    assert java("TargetShare", release, target.bootstrap, target.control, "one") == [
        "delivered: accepted 1, rejected 1, released 1, renewed 1",
        "errors: []",
        "second member: released 2",
        "errors: []",
        "after the lock: renewed 2",
        "errors: []",
        "state: Empty",
        "start: 4",
        "groups: []",
    ]
    assert target.rules() == set()


# Go


def franz_go() -> str:
    return str(built_with_go("franzgo"))


def sarama() -> str:
    return str(built_with_go("sarama"))


def test_franz_go_produces_consumes_and_commits(target: TargetProcess) -> None:
    output = json.loads(output_of([franz_go(), target.bootstrap, "run"]))
    assert output.pop("brokers").startswith("3@127.0.0.1:")
    assert output == {
        "produced": 40,
        "consumed": 40,
        "assigned": [2, 2],
        "committed": ["true"],
        "listed": ["run-group"],
    }
    assert target.rules() == set()


def test_franz_go_share_consumers_acknowledge_renew_and_lose_a_lock(target: TargetProcess) -> None:
    target.earliest("one-share")
    output = json.loads(output_of([franz_go(), "target", target.bootstrap, target.control, "one"]))
    assert output == {
        "first": ["accepted 1", "rejected 1", "released 1", "renewed 1"],
        "second": ["released 2"],
        "renewed": 0,
        "expired": ["renewed 2"],
    }
    assert target.rules() == set()


def own_suites() -> Path:
    """Return the compiled tests of franz-go's client, of the version that the client program uses."""
    go = need("go")
    sources = sorted(path for path in (CLIENTS / "franzgo").iterdir() if path.is_file())
    command = [go, "test", *QUICK_BUILD, "-c", "-o", "kgo.test", "github.com/twmb/franz-go/pkg/kgo"]
    return built("franzgo-own", command, "kgo.test", sources) / "kgo.test"


def test_the_group_transaction_and_share_suites_of_franz_go_pass(target: TargetProcess) -> None:
    selected = f"^({'|'.join(OWN_SUITES)})$"
    done = subprocess.run(
        [str(own_suites()), "-test.v", "-test.run", selected, "-test.timeout", "300s"],
        env=os.environ | {"KGO_SEEDS": target.bootstrap, "KGO_TEST_RECORDS": str(SUITE_RECORDS)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    passed = {name for name in OWN_SUITES if f"\n--- PASS: {name} " in done.stdout}
    assert passed == set(OWN_SUITES), done.stdout[-5000:] + done.stderr[-2000:]
    # C3 of docs/conformance-results.md; the tests request metadata every 50 ms until a new topic is there.
    assert target.rules() <= {"heartbeat-interval-ignored", "metadata-storm"}


def test_sarama_produces_consumes_and_commits(target: TargetProcess) -> None:
    output = json.loads(output_of([sarama(), "target", target.bootstrap, "run"]).splitlines()[-1])
    assert output == {
        "produced": 30,
        "consumed": 30,
        "committed": [10, 10, 10],
        "transactions": ["committed"],
        "topics": 4,
    }
    assert target.rules() == set()


# JavaScript


def kafkajs(program: str) -> list[str]:
    node, npm = need("node"), need("npm")
    install = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    return [node, str(built("kafkajs", install, "node_modules") / program)]


def test_kafkajs_produces_consumes_and_commits(target: TargetProcess) -> None:
    output = json.loads(output_of([*kafkajs("main.js"), target.bootstrap, "run"]))
    assert len(output.pop("brokers")) == 3
    assert output == {
        "produced": 40,
        "consumed": 40,
        "assigned": {"first": 2, "second": 2},
        "committed": ["commit"],
        "offset": "7",
        "listed": ["run-committed", "run-group", "run-offsets"],
        "state": "Empty",
    }
    assert target.rules() == {"api-versions-missing"}  # C2 of docs/conformance-results.md


def test_kafkajs_ends_when_a_response_is_cut_while_another_node_refuses(target: TargetProcess) -> None:
    """C4 of docs/conformance-results.md: the bytes of the cut response are taken for the beginning of the next one."""
    for partition in (0, 1):
        target.do("leaders/move", topic="t", partition=partition, node=partition + 1)
    target.do("faults", api="Produce", node=1, error="NOT_LEADER_OR_FOLLOWER")
    target.do("faults", api="Produce", node=2, cut_after=6)
    command = [*kafkajs("cut.js"), target.bootstrap, "t"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "ERR_BUFFER_OUT_OF_BOUNDS" in done.stderr


# Faults


RECOVERABLE = (
    "leader error",
    "retriable error after the append",
    "cut response",
    "commit at the wrong coordinator",
    "coordinator not available",
    "fetch session lost",
)


THROTTLED = ("Produce", "Fetch", "Metadata")


@pytest.mark.parametrize("client", ["java classic", "java consumer", "franz-go", "sarama"])
def test_a_client_recovers_from_faults_without_a_finding(target: TargetProcess, client: str) -> None:
    for name in RECOVERABLE:
        target.do("faults", **FAULTS[name])
    for api in THROTTLED:
        target.do("faults", api=api, throttle_ms=300, nth=3, count=2)
    if client.startswith("java"):
        protocol = client.partition(" ")[2]
        assert "read: 30" in java("TargetClient", JAVA[-1], target.bootstrap, "t", "group", protocol)
    elif client == "franz-go":
        assert json.loads(output_of([franz_go(), target.bootstrap, "run"]))["consumed"] == 40
    else:
        assert '"consumed":30' in output_of([sarama(), "target", target.bootstrap, "run"])
    assert target.rules() == set()
