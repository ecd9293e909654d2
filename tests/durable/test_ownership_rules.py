"""Owners of share state, and the time until which a proxy may act as the owner (durable/README.md rules 20-25)."""

from __future__ import annotations

import random

import pytest
from kafka_share_proxy.durable.ownership_rules import (
    Lease,
    OwnerInTable,
    ProxyMember,
    assign,
    decode_member,
    decode_table,
    encode_member,
    encode_table,
    is_mine,
    spread,
)
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError

OK, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS


def lease() -> Lease:
    """Return a lease that ends 4.5 s after the last successful heartbeat, counted from its sending."""
    return Lease(session_s=6.0, rebalance_s=6.0, margin_s=1.5)


def test_nothing_is_owned_before_the_first_assignment():
    assert not lease().is_valid(0.0)


def test_lease_counts_from_when_the_heartbeat_was_sent():
    """Its response may have been delayed, and the machine may have slept in the meantime."""
    held_lease = lease()
    held_lease.joined(100.0)
    held_lease.on_heartbeat(OK, 103.0)
    assert held_lease.is_valid(107.4)
    assert not held_lease.is_valid(107.5)
    held_lease.on_heartbeat(OK, 110.0)
    assert held_lease.is_valid(114.4), "the same generation goes on: nobody else was let in"


def test_heartbeat_responses_out_of_order_do_not_shorten_the_lease():
    held_lease = lease()
    held_lease.joined(100.0)
    held_lease.on_heartbeat(OK, 105.0)
    held_lease.on_heartbeat(OK, 103.0)
    assert held_lease.ends == 109.5


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID]
)
def test_any_other_error_code_ends_the_lease(code):
    held_lease = lease()
    held_lease.joined(100.0)
    held_lease.on_heartbeat(code, 101.0)
    assert not held_lease.is_valid(101.0)
    held_lease.on_heartbeat(OK, 100.5)
    held_lease.joined(102.0)
    assert held_lease.is_valid(102.0)


def test_lease_ends_unless_the_member_joins_again_within_the_rebalance_timeout():
    """From the first 27 on a member has the rebalance timeout to join again, whatever heartbeats return."""
    held_lease = lease()
    held_lease.joined(100.0)
    held_lease.on_heartbeat(REBALANCE, 102.0)
    held_lease.on_heartbeat(REBALANCE, 105.0)
    assert held_lease.is_valid(106.4)
    assert not held_lease.is_valid(106.5)
    held_lease.joined(106.0)
    assert held_lease.is_valid(110.4)


def test_owners_keep_their_partitions():
    """A second proxy takes nothing from a serving one, whatever its id is."""
    members = {"b": ProxyMember("one:1", (0, 1)), "a": ProxyMember("two:1")}
    assert assign(members, range(3)) == {"a": OwnerInTable("two:1", ()), "b": OwnerInTable("one:1", (0, 1, 2))}


def test_without_an_owner_the_first_is_chosen():
    assert assign({"b": ProxyMember("x"), "a": ProxyMember("y")}, range(2))["a"].partitions == (0, 1)
    assert assign({}, range(2)) == {}


def test_single_owner_is_chosen_even_if_two_members_claim_partitions():
    members = {"a": ProxyMember("x", (0,)), "b": ProxyMember("y", (0,))}
    assert [owner.partitions for owner in assign(members, range(1)).values()] == [(0,), ()]


def test_a_returning_member_is_known_by_its_name_never_by_its_address():
    """Two proxies may have the same address by mistake; only one of them has the name."""
    line = OwnerInTable("a:1", (0,), "proxy-a")
    assert is_mine("old id", line, "new id", "proxy-a")
    assert is_mine("id", line, "id", None)
    assert not is_mine("old id", line, "new id", None)
    assert not is_mine("old id", OwnerInTable("a:1", (0,)), "new id", "proxy-a")
    assert not is_mine("old id", OwnerInTable("a:1", (0,)), "new id", "")


def test_metadata_and_table_are_decoded_as_they_were_encoded():
    member = ProxyMember("proxy:9092", (0, 49), "proxy-a")
    assert decode_member(encode_member(member)) == member
    table = {"m-1": OwnerInTable("a:1", (1, 2), "proxy-a"), "m-2": OwnerInTable("b:1", ())}
    assert decode_table(encode_table(table)) == table
    for flags in (), (True, False), (False, True):
        member = ProxyMember("proxy:9092", (0, 49), "proxy-a", "proxy:9999", *flags)
        assert decode_member(encode_member(member)) == member
    table = {"m-1": OwnerInTable("a:1", (1, 2), "proxy-a", "a:2"), "m-2": OwnerInTable("b:1", (), "", "b:2")}
    assert decode_table(encode_table(table)) == table


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\2abc", b"\0\0\xff\xff"])
def test_what_cannot_be_read_is_refused(data):
    """A member of another release, or foreign bytes."""
    with pytest.raises(RemoteProtocolError):
        decode_member(data)
    with pytest.raises(RemoteProtocolError):
        decode_table(data)


def fleet(*owned: tuple[int, ...]) -> dict[str, ProxyMember]:
    return {chr(97 + n): ProxyMember(f"{n}:1", each, "", f"{n}:2") for n, each in enumerate(owned)}


def test_fleet_shares_evenly():
    table = spread(fleet((), (), ()), range(50))
    assert sorted(len(owner.partitions) for owner in table.values()) == [16, 17, 17]
    assert sorted(p for owner in table.values() for p in owner.partitions) == list(range(50))
    assert {owner.peer for owner in table.values()} == {"0:2", "1:2", "2:2"}
    assert spread({}, range(50)) == {}


def test_partition_that_moves_has_no_owner_until_its_owner_has_stopped():
    """Two concurrent owners must never exist."""
    first = spread(fleet(tuple(range(6)), ()), range(6))
    assert [owner.partitions for owner in first.values()] == [(0, 1, 2), ()]
    second = spread(fleet((0, 1, 2), ()), range(6))
    assert [owner.partitions for owner in second.values()] == [(0, 1, 2), (3, 4, 5)]


def test_of_two_claims_to_a_partition_one_is_accepted():
    table = spread(fleet((0, 1), (1, 2)), range(4))
    assert [owner.partitions for owner in table.values()] == [(0, 1), (2, 3)]


def test_no_partition_moves_if_the_shares_are_even():
    owned = spread(fleet((), (), ()), range(50))
    again = spread(fleet(*(owner.partitions for owner in owned.values())), range(50))
    assert [o.partitions for o in again.values()] == [o.partitions for o in owned.values()]


def spread_over(**members: tuple[tuple[int, ...], bool, bool]) -> dict[str, tuple[int, ...]]:
    """Spread six partitions over members with (owned, is_retiring, is_successor)."""
    proxy_members = {name: ProxyMember(name, owned, "", name, *flags) for name, (owned, *flags) in members.items()}
    return {name: owner.partitions for name, owner in spread(proxy_members, range(6)).items()}


def test_a_successor_owns_nothing_before_a_member_retires():
    old = (0, 1, 2), False, False
    assert spread_over(a=old, b=((3, 4, 5), False, False), c=((), False, True)) == {
        "a": (0, 1, 2), "b": (3, 4, 5), "c": ()
    }  # fmt: skip
    retiring = spread_over(a=((0, 1, 2), True, False), b=((3, 4, 5), True, False), c=((), False, True))
    assert retiring == {"a": (), "b": (), "c": ()}, "until their owners have stopped"
    assert spread_over(a=((), True, False), c=((), False, True)) == {"a": (), "c": (0, 1, 2, 3, 4, 5)}


def test_members_that_do_not_retire_share_what_the_others_had():
    table = spread_over(a=((), True, False), b=((3, 4, 5), False, False), c=((), False, True))
    assert table == {"a": (), "b": (3, 4, 5), "c": (0, 1, 2)}


def test_without_any_other_member_those_that_retire_and_successors_own_everything():
    assert spread_over(a=((0, 1), True, False)) == {"a": (0, 1, 2, 3, 4, 5)}
    assert spread_over(c=((), False, True)) == {"c": (0, 1, 2, 3, 4, 5)}


@pytest.mark.parametrize("seed", range(20))
def test_no_partition_ever_has_two_owners_while_members_join_and_leave(seed):
    """A proxy that stops serving moved partitions and joins again: an even share within two generations of the last."""
    chance = random.Random(seed)
    held: dict[str, set[int]] = {}
    for step in range(30):
        if chance.random() < 0.4 or not held:
            held[f"m{step}"] = set()
        elif chance.random() < 0.5:
            del held[chance.choice(sorted(held))]
        if not held:
            continue
        for _ in range(2):
            members = {m: ProxyMember(m, tuple(sorted(owned)), "", m) for m, owned in held.items()}
            before = {p: m for m, owned in held.items() for p in owned}
            for member_id, owner in spread(members, range(50)).items():
                assert all(before.get(p, member_id) == member_id for p in owner.partitions)
                held[member_id] = set(owner.partitions)
        sizes = [len(owned) for owned in held.values()]
        assert sum(sizes) == 50
        assert max(sizes) - min(sizes) <= 1
