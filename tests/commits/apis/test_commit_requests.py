"""Common behaviour of commits in and outside of transactions."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import OFFSET_COMMIT, TXN_OFFSET_COMMIT, CommitWorld


@pytest.mark.parametrize("in_transaction", [False, True])
def test_request_without_acceptable_partitions_sends_no_request_upstream(in_transaction: bool) -> None:
    """The group is not marked, and the log gives the reason."""
    world = CommitWorld()
    commit = world.commit_in_transaction if in_transaction else world.commit
    assert commit(43, "ic/1;9-7").codes == [ErrorCode.INVALID_REQUEST]
    assert world.cluster.count(TXN_OFFSET_COMMIT if in_transaction else OFFSET_COMMIT) == 0
    assert not world.services.held.groups
    assert not world.is_marked()
    ((_, context),) = [note for note in world.world.notes if note[0] == "commit-refused"]
    assert "9-7" in context["reason"]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_group_marker_is_stored_before_and_known_after(in_transaction: bool) -> None:
    world = CommitWorld()
    world.journal.slow = True
    commit = world.commit_in_transaction if in_transaction else world.commit
    sent = commit(43, "ic/1;50-51")
    assert world.cluster.count(TXN_OFFSET_COMMIT if in_transaction else OFFSET_COMMIT) == 0
    world.journal.confirm()
    if not in_transaction:
        world.journal.confirm()
    assert sent.codes == [0]
    assert world.is_marked()
    assert list(world.services.held.groups) == ["g"]
