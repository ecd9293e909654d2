"""A bound on renewing one delivery."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.acknowledging import ACCEPT, RENEW, Refusal
from kafka_share_proxy.sharegroups.model.acquiring import ReadRecords
from kafka_share_proxy.sharegroups.model.offset_runs import ACQUIRED, OffsetRun
from kafka_share_proxy.sharegroups.model.partition import SharePartition
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.wire.errors import ErrorCode

from tests.sharegroups.model.world import Batch, Settings


@pytest.mark.parametrize(
    ("pattern", "group", "holds"),
    [("*", "any", True), ("jobs-*", "jobs-1", True), ("jobs-?", "jobs-12", False), ("Jobs", "jobs", False)],
)
def test_patterns_name_groups_with_case(pattern, group, holds):
    assert RenewalBound(groups=pattern).holds_for(group) is holds


def run(renewals=0, acquired_at=100.0):
    offset_run = OffsetRun(object(), 5, 9, ACQUIRED, 1)
    offset_run.renewals, offset_run.acquired_at = renewals, acquired_at
    return offset_run


def test_it_strikes_at_the_count_or_at_the_time():
    """None of both set: never."""
    by_count, by_time = RenewalBound(renewals=2), RenewalBound(held_s=60)
    assert [by_count.refusal_of(run(renewals), 1e9) is None for renewals in (0, 1, 2, 3)] == [True, True, False, False]
    assert [by_time.refusal_of(run(99), now) is None for now in (100, 159, 160)] == [True, True, False]
    assert "offset 5 is held for 60.0 s" in by_time.refusal_of(run(), 160)
    assert RenewalBound().refusal_of(run(10**6), 1e9) is None


SETTINGS = Settings()


def held() -> SharePartition:
    """ann holds 0-9 since 100."""
    partition = SharePartition(0)
    partition.acquire("ann", ReadRecords(0, [Batch(0, 9)]), 10, 10, False, SETTINGS, 100.0)
    return partition


def acknowledge(partition, first, last, types, now, bound):
    return partition.decide_acknowledge("ann", [(first, last, types)], True, SETTINGS, now, bound)


def test_what_was_renewed_less_often_continues():
    """The bound counts per record; a refused record keeps its lock until its time and no longer."""
    partition, bound = held(), RenewalBound(renewals=1)
    assert not isinstance(acknowledge(partition, 3, 4, [RENEW], 110.0, bound), Refusal)
    refused = acknowledge(partition, 0, 9, [RENEW], 120.0, bound)
    assert (refused.error, refused.by_bound) == (ErrorCode.INVALID_RECORD_STATE, True)
    locks = [(lock.first, lock.last, lock.renewals, lock.deadline) for lock in partition.locks()]
    assert locks == [(0, 2, 1, 150.0), (3, 4, 1, 140.0), (5, 9, 0, 130.0)]


def test_other_acknowledgements_are_not_bounded():
    partition, bound = held(), RenewalBound(held_s=5)
    assert not isinstance(acknowledge(partition, 0, 9, [ACCEPT], 120.0, bound), Refusal)


def test_refused_with_a_renewal_is_the_whole_partition():
    """Every refusal of an acknowledgement does the same."""
    partition, bound = held(), RenewalBound(held_s=5)
    types = [ACCEPT] * 5 + [RENEW] * 5
    assert acknowledge(partition, 0, 9, types, 120.0, bound).by_bound
    assert [(lock.first, lock.last) for lock in partition.locks()] == [(0, 9)]
    assert not isinstance(acknowledge(partition, 0, 9, types, 120.0, None), Refusal)


def test_a_new_delivery_is_counted_anew():
    partition, bound = held(), RenewalBound(renewals=1, held_s=60)
    acknowledge(partition, 0, 9, [RENEW], 110.0, bound)
    partition.apply(partition.decide_release("ann", SETTINGS))
    partition.acquire("ann", ReadRecords(0, [Batch(0, 9)]), 10, 10, False, SETTINGS, 300.0)
    assert not isinstance(acknowledge(partition, 0, 9, [RENEW], 301.0, bound), Refusal)
