"""Previous owners of partitions."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.previous_owners import earlier_claims, previous_owners

from tests.consumer.assignors.groups import member, places, shown

COUNTS = {"a": 3}


def owners_of(**members: tuple[str, int]):
    listed = {name: member("a", had, generation) for name, (had, generation) in members.items()}
    return previous_owners(COUNTS, listed, lambda each: (each.owned, each.generation))


def test_a_partition_belongs_to_the_claim_of_the_later_generation() -> None:
    for first, second in ((1, 2), (2, 1)):
        settled = owners_of(m0=("a0 a1", first), m1=("a0 a2", second))
        winner, loser = ("m1", "m0") if second > first else ("m0", "m1")
        assert "a0" in shown(settled.owned)[winner]
        assert "a0" not in shown(settled.owned)[loser]
        assert settled.latest_generation == 2
        assert settled.claimed_twice == set()


def test_claimed_twice_in_one_generation_it_belongs_to_neither() -> None:
    settled = owners_of(m0=("a0 a1", 1), m1=("a0", 1), m2=("a0", 1))
    assert shown(settled.owned) == {"m0": "a1", "m1": "", "m2": ""}
    assert settled.claimed_twice == set(places("a0"))


def test_unknown_partitions_have_no_owner() -> None:
    assert shown(owners_of(m0=("a0 a3 z0", 1)).owned) == {"m0": "a0"}


def test_earlier_claims_are_those_before_the_latest_generation() -> None:
    settled = owners_of(m0=("a0", 5), m1=("a0 a1", 3), m2=("a1 a2", 4))
    assert earlier_claims(settled) == dict(zip(places("a0 a1 a2"), ("m1", "m2", "m2"), strict=True))
