"""Delayed revoke: which partitions are to be revoked, completed, or lost (KIP-983)."""

from __future__ import annotations

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import frozensets, sampled_from
from kafka_share_proxy.consumer.groups.revoke_ledger import RevokeLedger
from kafka_share_proxy.consumer.partitions import NOTHING
from kafka_share_proxy.wire.values import TopicPartition

A, B, C = (TopicPartition("p", number) for number in range(3))


def revoked_in_a_poll(*partitions: TopicPartition) -> RevokeLedger:
    """Return a ledger whose first poll has reported these to the application."""
    ledger = RevokeLedger()
    assert ledger.begin_poll() == NOTHING
    ledger.request(partitions, 1)
    assert ledger.end_poll() == (frozenset(partitions), NOTHING)
    return ledger


def test_a000_3_delayed_revoke_is_completed_one_poll_later_each_time() -> None:
    """Revoke {a,b} in poll 1; delay {a}; poll 2 completes b; delay {a}; poll 3 nothing; no delay; poll 4 a."""
    ledger = revoked_in_a_poll(A, B)
    assert ledger.delay({A})
    assert ledger.begin_poll() == {B}
    assert ledger.end_poll() == ({A}, NOTHING)
    assert ledger.delay({A})
    assert ledger.begin_poll() == NOTHING
    assert ledger.end_poll() == ({A}, NOTHING)
    assert ledger.begin_poll() == {A}
    assert ledger.end_poll() == (NOTHING, NOTHING)


def test_a000_1_a_revoke_is_completed_by_the_poll_after_the_one_that_learned_of_it() -> None:
    ledger = revoked_in_a_poll(B)
    assert ledger.next == {B}
    assert ledger.begin_poll() == {B}
    assert ledger.outstanding == NOTHING


def test_a_revoke_between_two_polls_is_first_reported_then_completed() -> None:
    ledger = RevokeLedger()
    ledger.request({A}, 1)
    assert ledger.begin_poll() == NOTHING
    assert ledger.end_poll() == ({A}, NOTHING)
    assert ledger.begin_poll() == {A}


def test_a000_4_a_lost_partition_is_not_delayed_and_reported_once() -> None:
    ledger = revoked_in_a_poll(A, B)
    assert ledger.delay({B})
    ledger.add_lost({B})
    assert not ledger.delay({B})
    assert ledger.begin_poll() == {A}
    assert ledger.end_poll() == (NOTHING, {B})
    assert not ledger.delay({B})
    ledger.begin_poll()
    assert ledger.end_poll() == (NOTHING, NOTHING)
    with pytest.raises(ValueError, match="p-1"):
        ledger.delay({B})


def test_lost_partitions_among_others_are_not_delayed_and_the_result_is_false() -> None:
    ledger = revoked_in_a_poll(A, B)
    ledger.add_lost({B})
    assert not ledger.delay({A, B})
    assert ledger.thereafter == {A}


def test_delaying_what_is_not_to_be_revoked_raises_and_moves_nothing() -> None:
    ledger = revoked_in_a_poll(A)
    with pytest.raises(ValueError, match="not to be revoked: p-2; delay what poll returned"):
        ledger.delay({A, C})
    assert ledger.next == {A}
    assert ledger.thereafter == NOTHING


def test_a000_5_a_partition_given_back_leaves_the_lists_and_completes_never() -> None:
    ledger = revoked_in_a_poll(A, B)
    ledger.delay({B})
    ledger.cancel({B})
    ledger.request(NOTHING, 2)
    polls = []
    for _ in range(3):
        polls.append(ledger.begin_poll())
        ledger.end_poll()
    assert polls == [NOTHING] * 3


def test_a_completion_of_an_older_rebalance_is_dropped() -> None:
    """A was to be revoked by rebalance 1; rebalance 2 names B only, so that it does not wait for A."""
    ledger = revoked_in_a_poll(A)
    ledger.request({B}, 2)
    assert ledger.begin_poll() == NOTHING
    assert ledger.end_poll() == ({B}, NOTHING)
    assert ledger.begin_poll() == {B}
    with pytest.raises(ValueError, match="rebalance 1 is over"):
        ledger.request({A}, 1)


def test_a_partition_requested_again_keeps_its_delay() -> None:
    ledger = revoked_in_a_poll(A)
    ledger.delay({A})
    ledger.request({A}, 2)
    assert ledger.begin_poll() == NOTHING
    assert ledger.end_poll() == ({A}, NOTHING)
    assert ledger.begin_poll() == {A}


def test_a000_6_nothing_is_outstanding_of_what_was_never_requested() -> None:
    ledger = RevokeLedger()
    ledger.cancel({A})
    assert ledger.outstanding == NOTHING
    assert ledger.begin_poll() == NOTHING


def test_lost_and_reassigned_partitions_are_complete_immediately_and_still_reported() -> None:
    """The application has had no record of it since: there is nothing to wait for."""
    ledger = RevokeLedger()
    ledger.add_lost({A})
    ledger.cancel({A})
    assert ledger.request({A, B}, 1) == {A}
    assert ledger.end_poll() == ({B}, {A})


def test_a000_10_leaving_completes_everything_immediately() -> None:
    ledger = revoked_in_a_poll(A, B)
    ledger.delay({A})
    ledger.request({C}, 1)
    assert ledger.release_all() == {A, B, C}
    assert ledger.outstanding == NOTHING


ANY = frozensets(sampled_from((A, B, C)))


class Polls(RuleBasedStateMachine):
    """Any order of polls, delays, rebalances and losses, against what an application may believe."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = RevokeLedger()
        self.rebalance = 0
        self.requested: set[TopicPartition] = set()
        """Requested by a rebalance, and since then neither completed, nor lost, nor returned."""
        self.reported: frozenset[TopicPartition] = NOTHING
        """Partitions to be revoked according to the last poll, without those delayed since."""
        self.losses: set[TopicPartition] = set()
        """Not yet reported."""

    @rule(partitions=ANY)
    def rebalance_begins(self, partitions: frozenset[TopicPartition]) -> None:
        """Begin a rebalance that revokes these partitions. Requested ones that it does not name are given back."""
        self.rebalance += 1
        self.ledger.cancel(self.requested - partitions)
        free = self.ledger.request(partitions, self.rebalance)
        assert free == partitions & (self.ledger.lost_now | self.losses)
        self.reported -= self.requested - partitions
        self.requested = set(partitions - free)

    @rule(partitions=ANY)
    def partitions_are_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.losses |= partitions - self.ledger.lost_now
        self.ledger.add_lost(partitions)
        self.requested -= partitions
        self.reported -= partitions

    @rule(partitions=ANY)
    def partitions_come_back(self, partitions: frozenset[TopicPartition]) -> None:
        self.ledger.cancel(partitions)
        self.requested -= partitions
        self.reported -= partitions

    @rule(partitions=ANY)
    def application_delays(self, partitions: frozenset[TopicPartition]) -> None:
        listed = self.ledger.next | self.ledger.thereafter
        lost = self.ledger.lost_now | self.ledger.lost_pending
        before = (self.ledger.next, self.ledger.thereafter)
        if partitions <= listed | lost:
            assert self.ledger.delay(partitions) == (not partitions & lost)
            assert partitions - lost <= self.ledger.thereafter
            self.reported -= partitions
        else:
            with pytest.raises(ValueError):
                self.ledger.delay(partitions)
            assert (self.ledger.next, self.ledger.thereafter) == before

    @rule()
    def poll_begins_and_ends(self) -> None:
        completed = self.ledger.begin_poll()
        assert completed == self.reported, "what was reported and not delayed, once, and nothing else"
        self.requested -= completed
        to_be_revoked, lost = self.ledger.end_poll()
        assert to_be_revoked == self.requested
        assert lost == self.losses
        self.reported, self.losses = to_be_revoked, set()

    @invariant()
    def a_partition_is_in_one_list_at_most(self) -> None:
        ledger = self.ledger
        lists = [ledger.next, ledger.thereafter, ledger.unreported, ledger.lost_now | ledger.lost_pending]
        assert sum(map(len, lists)) == len(frozenset().union(*lists))


Polls.TestCase.settings = hypothesis_settings(max_examples=200, stateful_step_count=40, deadline=None)
TestPolls = Polls.TestCase
