"""Routing of a request while it is unknown which groups commit individually, and while the topic cannot be used."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits.apis.commit_responses import COMMIT_HOLD_S
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import OFFSET_FETCH, CommitWorld

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Uncertain(CommitWorld):
    """A proxy that has not read the topic of ranges yet."""

    def __init__(self) -> None:
        super().__init__()
        self.followed = self.services.followed
        self.followed.uncertain.update(dict.fromkeys(range(50), False))

    def learn(self, *groups: str) -> None:
        """The topic is read."""
        self.followed.groups.update(dict.fromkeys(groups, 0))
        self.followed.uncertain.clear()
        waiters, self.followed._waiters = self.followed._waiters, []
        for waiter in waiters:
            waiter.set(None)


def test_plain_commit_waits_until_it_is_known_that_its_group_has_no_ranges() -> None:
    world = Uncertain()
    sent = world.commit(43)
    assert not sent.has_response
    world.learn("another")
    assert sent.codes == [0]
    assert world.primary() == (43, "")
    assert world.cluster.count(OFFSET_FETCH) == 0, "it passed"


def test_plain_commit_of_a_known_group_goes_to_the_owner_once_that_is_known() -> None:
    world = Uncertain()
    sent = world.commit(43)
    world.learn("g")
    assert sent.codes == [0]
    assert world.cluster.count(OFFSET_FETCH) == 1, "the owner asked for the mark"


def test_commits_and_fetches_finally_get_a_retriable_error() -> None:
    """14: every client repeats them."""
    world = Uncertain()
    sent, fetch = world.commit(43), world.fetch(version=8)
    world.timers.advance(HOLD_MAX_S + 0.1)
    assert [group.error_code for group in fetch.response.groups] == [LOADING]
    assert not sent.has_response, "librdkafka repeats a commit twice only"
    world.timers.advance(COMMIT_HOLD_S - HOLD_MAX_S)
    assert sent.codes == [LOADING]
    assert world.primary() == (-1, "")
    assert world.followed._waiters == []


def test_text_does_not_wait_for_the_tail() -> None:
    """The owner knows more than any tail."""
    world = Uncertain()
    assert world.commit(43, "ic/1;45-47").codes == [0]
    assert world.ranges() == "45-47"
    assert world.is_marked()


def test_groups_that_are_all_taken_for_known_go_to_the_owner() -> None:
    """Their partition of the topic cannot be read, or has too many groups."""
    world = CommitWorld()
    world.services.followed.uncertain.update(dict.fromkeys(range(50), True))
    assert world.commit(43).codes == [0]
    assert world.cluster.count(OFFSET_FETCH) == 1, "the owner asked for the mark"


def test_text_is_refused_where_the_topic_cannot_be_used_and_other_partitions_are_forwarded() -> None:
    world = CommitWorld()
    world.services.followed.off = "the proxy has no identity of its own"
    sent = world.commit_many([("t", 0, 43, "ic/1;45-47"), ("t", 1, 7, "user text")])
    assert sent.codes == [ErrorCode.INVALID_REQUEST, 0]
    assert (world.primary(), world.primary(partition=1)) == ((-1, ""), (7, "user text"))
    assert world.topic == {}
    assert world.commit(44).codes == [0], "plain commits pass"
    transaction = world.commit_in_transaction(45, "ic/1;47")
    assert transaction.codes == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("known", [False, True])
def test_deletions_of_unknown_groups_do_not_wait_for_ever(known: bool) -> None:
    """No tool repeats them: after the wait the request is sent to the broker."""
    world = Uncertain()
    world.coordinator.committed.clear()
    request = world.request_to_delete("g")
    assert not request.has_response
    if known:
        world.learn()
    else:
        world.timers.advance(HOLD_MAX_S + 0.1)
    assert [result.error_code for result in request.response.results] == [ErrorCode.GROUP_ID_NOT_FOUND]
