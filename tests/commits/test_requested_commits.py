"""A commit request, partition by partition."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.commits.requested_commits import RequestedCommit, final_nul, kept_metadata, requested_commits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.offsets.commit_text import parse_commit_text
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import CommitWorld

METADATA = 3


def read(world: CommitWorld, *texts: str | None) -> list[RequestedCommit]:
    request = registry.message("OffsetCommitRequest")
    partitions = [
        request.OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=text)
        for index, text in enumerate(texts)
    ]
    message = request(group_id="g", topics=[request.OffsetCommitRequestTopic(name="t", partitions=partitions)])
    call = Call(8, 9, 1, "c", message, world.connect())  # type: ignore[arg-type]
    return on_its_own(requested_commits(call, world.services)).result()


def test_individual_plain_and_refused_partitions_of_one_request() -> None:
    commits = read(CommitWorld(ranges_max=1), "ic/1;7-8", "mine", None, "ic/1;7", "ic/1;7-7,9-9", "ic/3;1-2")
    assert [requested.text is not None for requested in commits] == [True, False, False, False, False, False]
    codes = [
        None,
        None,
        None,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [requested.code for requested in commits] == codes
    assert all(requested.reason for requested in commits[3:])


def test_topics_are_queried_periodically() -> None:
    world = CommitWorld(topic_age_s=5.0)
    for _ in range(3):
        assert read(world, "ic/1;7-8")[0].topic_id == world.cluster.topics["t"].topic_id
    assert world.cluster.count(METADATA) == 1
    world.timers.advance(6)
    read(world, "ic/1;7-8")
    assert world.cluster.count(METADATA) == 2


@pytest.mark.parametrize(
    ("metadata", "expected_metadata"),
    [
        ("mine", "mine"),
        (None, None),
        ("ic/1;7-8", ""),
        ("ic/1;7-8\0", "\0"),
        ("ic/1;7-8;u=mine\0", "mine\0"),
        ("ic/1;7-8;pr=1-2;u=mine", "ic/1;;pr=1-2;u=mine"),
    ],
)
def test_what_is_kept_of_the_text(metadata: str | None, expected_metadata: str | None) -> None:
    entry: Any = registry.message("OffsetCommitRequest").OffsetCommitRequestPartition(committed_metadata=metadata)
    text = parse_commit_text(metadata) if metadata and metadata.startswith("ic/") else None
    assert kept_metadata(RequestedCommit(None, entry, text=text)) == expected_metadata


def test_nul_is_kept_in_its_place() -> None:
    assert (final_nul(None), final_nul("a"), final_nul("a\0")) == ("", "", "\0")
