"""Altered requests, and responses in the order of the request."""

from __future__ import annotations

from kafka_share_proxy.commits.apis.commit_responses import DEFINITE, copy_with
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode


def test_copy_has_other_fields_and_unknown_tags() -> None:
    request = registry.message("OffsetCommitRequest")
    entry = request.OffsetCommitRequestPartition(partition_index=3, committed_offset=5, committed_metadata="x")
    entry.unknown_tags = {7: b"tag"}
    copy = copy_with(entry, committed_offset=9)
    assert (copy.partition_index, copy.committed_offset, copy.committed_metadata) == (3, 9, "x")
    assert copy.unknown_tags == {7: b"tag"}
    assert entry.committed_offset == 5


def test_what_may_have_been_committed_is_not_definite() -> None:
    """A coordinator says these after it has appended, too, or it is not known what it says them after."""
    for code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT):
        assert code not in DEFINITE
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in DEFINITE
