"""Seeded faults of classic groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

CLASSIC, STATIC = "groups.classic", "groups.static"
FAULTS = [
    Fault("generation-one-too-high", f"{CLASSIC}.first-generation", "JoinGroup", put("generation_id", lambda n: n + 1)),
    Fault("members-not-listed", f"{CLASSIC}.first-generation", "JoinGroup", put("members", [])),
    Fault("members-listed-for-all", f"{CLASSIC}.second-generation", "JoinGroup", put("leader", "another")),
    Fault("unknown-member-joins", f"{CLASSIC}.join-unknown-member", "JoinGroup", replace("error_code", 25, 0)),
    Fault("session-timeout-not-checked", f"{CLASSIC}.join-short-session", "JoinGroup", replace("error_code", 26, 0)),
    Fault("assignment-missing", f"{CLASSIC}.assignments", "SyncGroup", put("assignment", b"")),
    Fault("generation-not-checked", f"{CLASSIC}.heartbeat-generation", "Heartbeat", replace("error_code", 22, 0)),
    Fault("wrong-code-for-generation", f"{CLASSIC}.sync-wrong-generation", "SyncGroup", replace("error_code", 22, 27)),
    Fault("left-stays", f"{CLASSIC}.leave", "Heartbeat", put("error_code", 0)),
    Fault("unknown-member-leaves", f"{CLASSIC}.leave-unknown-member", "LeaveGroup",
          replace("members[].error_code", 25, 0)),
    Fault("instance-not-fenced", f"{STATIC}.fenced-heartbeat", "Heartbeat", replace("error_code", 82, 0)),
    Fault("replacement-rebalances", f"{STATIC}.replaced", "JoinGroup",
          put("generation_id", lambda n: n + 1)),
    Fault("state-unknown", "groups.describe.stable", "DescribeGroups", put("groups[].group_state", "Empty")),
    Fault("filter-ignored", "groups.list.state-empty", "ListGroups", request=put("states_filter", [])),
    Fault("members-deleted", "groups.delete.non-empty", "DeleteGroups", replace("results[].error_code", 68, 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
