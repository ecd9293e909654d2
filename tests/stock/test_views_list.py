"""`views list` and audit events show the groups on views: which assignor they use, and what it does to the balance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka_share_proxy.app import cli
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from typer.testing import CliRunner

from tests.support import audit_lines
from tests.support.brokers import VIEWS, Running
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]
SLOTS, PARTITIONS, MEMBERS = 2, 2, 2
JOIN_S = 60.0


@pytest.fixture
def audit_file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def front(running: Running, kafka_43: Cluster, audit_file: Path) -> Front:
    return running.front(kafka_43.bootstrap, VIEWS | {"audit": {"file": str(audit_file)}})


@pytest.fixture
def raw(front: Front) -> Iterator[Raw]:
    with Raw(front.bootstrap) as opened:
        yield opened


def joined(stack: ExitStack, front: Front, group: str, view: str, **settings: str) -> None:
    """Have two members share all partitions of the view."""
    options = {"bootstrap.servers": str(front.bootstrap), "group.id": group, **settings}
    members = []
    for _ in range(MEMBERS):
        members.append(Consumer(options))
        stack.callback(members[-1].close)
        members[-1].subscribe([view])
    end = time.monotonic() + JOIN_S
    while [len(each.assignment()) for each in members] != [SLOTS * PARTITIONS // MEMBERS] * MEMBERS:
        assert time.monotonic() < end, "the members did not share the view"
        for each in members:
            each.poll(0.1)


def test_groups_on_views_are_listed_with_assignor_and_balance(
    front: Front, kafka_43: Cluster, audit_file: Path, raw: Raw, fresh: Callable[[str], str]
) -> None:
    topic = raw.create_topic(fresh("base"), PARTITIONS)
    view = f"__view.r{SLOTS}.{topic.name}"
    by_range, in_turn, uniform = (fresh(name) for name in ("range", "turn", "uniform"))
    with ExitStack() as stack:
        joined(stack, front, by_range, view, **{"partition.assignment.strategy": "range"})
        joined(stack, front, in_turn, view, **{"partition.assignment.strategy": "roundrobin"})
        joined(stack, front, uniform, view, **{"group.protocol": "consumer", "group.remote.assignor": "uniform"})
        result = CliRunner().invoke(cli.app, ["views", "list", "--upstream", str(kafka_43.bootstrap)])
    assert result.exit_code == 0, result.output
    lines = {line.split()[1]: line for line in result.output.splitlines() if line.startswith("group ")}
    for group, assignor in ((by_range, "range"), (in_turn, "roundrobin"), (uniform, "uniform")):
        assert (
            f"reads {view}: assignor {assignor}, 2 members, at most 2 partitions each (1.00 x the mean)" in lines[group]
        )
    assert "no plan balances: use cooperative-sticky" in lines[by_range]
    assert "no plan balances" not in lines[in_turn]

    def members(group: str) -> list[dict[str, Any]]:
        log_events = audit_lines.events(
            line for line in audit_file.read_bytes().splitlines(keepends=True) if line[-1:] == b"\n"
        )
        return [event for event in log_events if event["kind"] == "view_member" and event["group"] == group]

    for group, protocol, assignor in (
        (by_range, "classic", "range"), (in_turn, "classic", "roundrobin"), (uniform, "consumer", "uniform"),
    ):  # fmt: skip
        events = until(lambda group=group: members(group), "its members")
        assert {(each["view"], each["topic"], each["client"]) for each in events} == {(view, topic.name, "rdkafka")}
        assert {(each["group_protocol"], each["assignor"], *each["offered"]) for each in events} == {
            (protocol, assignor, assignor)
        }
        assert len({each["member"] for each in events}) == MEMBERS
        assert max(each["members"] or 0 for each in events) == (MEMBERS if protocol == "classic" else 0)
