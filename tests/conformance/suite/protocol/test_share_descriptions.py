"""Seeded faults of the description of share groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker


FAULTS = [
    Fault("always-empty", "share-groups.describe.stable", "ShareGroupDescribe", put("groups[].group_state", "Empty")),
    Fault("assignor-unnamed", "share-groups.describe.stable", "ShareGroupDescribe", put("groups[].assignor_name", "")),
    Fault(
        "member-epoch-of-the-past",
        "share-groups.describe.stable",
        "ShareGroupDescribe",
        put("groups[].members[].member_epoch", lambda n: n - 1),
    ),
    Fault(
        "unknown-group-described",
        "share-groups.describe.unknown",
        "ShareGroupDescribe",
        replace("groups[].error_code", 69, 0),
    ),
    Fault("listed-as-classic", "share-groups.list.all", "ListGroups", put("groups[].group_type", "classic")),
    Fault("members-deleted", "share-groups.delete.non-empty", "DeleteGroups", replace("results[].error_code", 68, 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
