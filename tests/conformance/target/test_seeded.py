"""Ids that depend on the seed only."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.seeded import SeededBytes


def test_the_same_seed_gives_the_same_ids() -> None:
    one, two, other = SeededBytes(1), SeededBytes(1), SeededBytes(2)
    assert [one.uuid(), one.number(100)] == [two.uuid(), two.number(100)]
    assert one.uuid_text() not in (one.uuid_text(), other.uuid_text())
