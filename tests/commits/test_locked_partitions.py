"""Work while no other request moves a committed offset: shared where possible, and repeated alone where necessary."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits.locked_partitions import text_of, with_locks, with_whole_group
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.loop.promise import Promise, on_its_own
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import OFFSET_FETCH, CommitWorld

PLACES = [TopicPartition("t", 1), TopicPartition("t", 0)]


def test_partitions_found_to_need_an_exclusive_lock_are_locked_again() -> None:
    services = CommitWorld().services
    first: Promise[str] = Promise()
    alone: set[TopicPartition] = set()

    async def wait() -> str:
        return await first

    async def work() -> str:
        return "done"

    holder = on_its_own(with_locks(services, "g", PLACES, lambda _: True, wait))
    second = on_its_own(with_locks(services, "g", PLACES, lambda place: place in alone, work))
    sharing = on_its_own(with_locks(services, "g", PLACES, lambda _: False, wait))
    alone.update(PLACES)
    first.set("over")
    assert (holder.result(), sharing.result(), second.result()) == ("over", "over", "done")
    assert len(services.locks) == 0


def test_lock_of_the_whole_group_blocks_only_requests_of_that_group() -> None:
    services = CommitWorld().services
    first: Promise[str] = Promise()

    async def wait() -> str:
        return await first

    async def work() -> str:
        return "done"

    on_its_own(with_whole_group(services, "g", wait))
    mine = on_its_own(with_locks(services, "g", PLACES, lambda _: False, work))
    other = on_its_own(with_locks(services, "other", PLACES, lambda _: False, work))
    assert (mine.done, other.done) == (False, True)
    first.set("")
    assert mine.done


@pytest.mark.parametrize("metadata", [None, "", "mine", "ic/2;1-2", "ic/1;2-1"])
def test_metadata_that_is_no_text_of_ranges_is_none(metadata: str | None) -> None:
    assert text_of(metadata) is None


def test_text_of_ranges_is_read() -> None:
    text = text_of("ic/1;4-5;u=x")
    assert text is not None
    assert (str(text.ranges), text.user_text) == ("4-5", "x")


@pytest.mark.parametrize("in_transaction", [False, True])
def test_nothing_is_forwarded_after_the_lease_has_ended(in_transaction: bool) -> None:
    """A process that was suspended continues with a commit, and another owner may have moved the offset meanwhile."""
    world = CommitWorld()
    world.begin(43, "45-47")
    world.services.held.groups["g"].partitions[TopicPartition("t", 0)].forget_committed()
    gate, before, world.cluster.held = world.services.gate, world.broker(), {OFFSET_FETCH}
    send = world.commit_in_transaction if in_transaction else world.commit
    sent = send(43, "ic/1;43-44")
    gate.lease = lambda: False
    world.cluster.release()
    assert (world.broker(), world.coordinator.pending) == (before, {})
    world.timers.advance(HOLD_MAX_S + 0.1)
    assert sent.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    gate.lease = lambda: True
    assert send(43, "ic/1;43-44").codes == [0]
    assert world.is_free
