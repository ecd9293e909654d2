"""Which partitions moved."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.partition_movements import PartitionMovements

from tests.consumer.assignors.groups import places

A0, A1, B0 = places("a0 a1 b0")


def test_one_that_moved_goes_back_instead_of_another_of_its_topic() -> None:
    movements = PartitionMovements()
    movements.moved(A0, "m0", "m1")
    assert movements.better_choice(A1, "m1", "m0") == A0
    assert movements.better_choice(A1, "m0", "m1") == A1
    assert movements.better_choice(B0, "m1", "m0") == B0


def test_one_that_moved_on_counts_from_where_it_was_first_and_one_that_is_back_not_at_all() -> None:
    movements = PartitionMovements()
    movements.moved(A0, "m0", "m1")
    movements.moved(A0, "m1", "m2")
    assert movements.better_choice(A1, "m2", "m0") == A0
    movements.moved(A0, "m2", "m0")
    assert movements.better_choice(A1, "m2", "m0") == A1
