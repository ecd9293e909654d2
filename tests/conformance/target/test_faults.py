"""Faults are selected by request, counted, and drawn from the seed."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target import faults
from kafka_share_proxy.conformance.target.faults import Fault, FaultPlan
from kafka_share_proxy.wire.definitions.api_key import ApiKey

FETCH = int(ApiKey.FETCH)


def matches(plan: FaultPlan, times: int, key: int = FETCH, node: int = 1, client_id: str = "c") -> list[int]:
    return [len(plan.match(key, node, client_id)) for _ in range(times)]


@pytest.mark.parametrize(
    ("fault", "selected"),
    [
        (Fault(lose=True), True),
        (Fault(lose=True, api=FETCH), True),
        (Fault(lose=True, api=ApiKey.PRODUCE), False),
        (Fault(lose=True, node=2), False),
        (Fault(lose=True, client_id="a*"), False),
        (Fault(lose=True, client_id="?"), True),
    ],
)
def test_a_fault_selects_api_node_and_client(fault: Fault, selected: bool) -> None:
    plan = FaultPlan()
    plan.add(fault)
    assert matches(plan, 1) == [int(selected)]


def test_a_fault_affects_requests_from_the_nth_on() -> None:
    plan = FaultPlan()
    number = plan.add(Fault(api=FETCH, nth=2, count=2, lose=True))
    assert matches(plan, 1, key=ApiKey.PRODUCE) == [0]
    assert matches(plan, 5) == [0, 1, 1, 0, 0]
    (placed,) = plan
    assert (placed.number, placed.selected, placed.applied) == (number, 5, 2)


def test_a_fault_without_count_affects_all() -> None:
    plan = FaultPlan()
    plan.add(Fault(count=None, lose=True))
    assert matches(plan, 5) == [1] * 5


def test_a_probability_is_drawn_from_the_seed() -> None:
    def drawn(seed: int) -> list[int]:
        plan = FaultPlan(seed)
        plan.add(Fault(count=None, probability=0.5, lose=True))
        return matches(plan, 200)

    assert drawn(1) == drawn(1) != drawn(2)
    assert 60 < sum(drawn(1)) < 140


def test_a_removed_fault_affects_nothing() -> None:
    plan = FaultPlan()
    first, second = (plan.add(Fault(count=None, lose=True)) for _ in range(2))
    plan.remove(first)
    assert [placed.number for placed in plan] == [second]
    plan.clear()
    assert matches(plan, 1) == [0]
    with pytest.raises(KeyError):
        plan.remove(first)


def test_a_fault_without_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="has no effect"):
        FaultPlan().add(Fault(api=FETCH))


def test_the_number_of_faults_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "FAULTS_MAX", 1)
    plan = FaultPlan()
    plan.add(Fault(lose=True))
    with pytest.raises(ValueError, match="delete some"):
        plan.add(Fault(lose=True))
