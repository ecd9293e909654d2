"""Bytes that members of a classic group send each other."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis.strategies import binary
from kafka_share_proxy.consumer.groups.group_protocol import (
    NO_GENERATION,
    GroupAssignment,
    GroupSubscription,
    MalformedAssignment,
    MalformedMember,
    cooperative_user_data,
    read_assignment,
    read_cooperative_user_data,
    read_sticky_user_data,
    read_subscription,
    sticky_user_data,
    write_assignment,
    write_subscription,
)
from kafka_share_proxy.wire.values import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
FULL = GroupSubscription(topics=("b", "a"), user_data=b"x", owned=(B0, A1, A0), generation=7, rack="r1")


@pytest.mark.parametrize(("version", "subscription"), [
    (0, GroupSubscription(topics=("a", "b"), user_data=b"x")),
    (1, GroupSubscription(topics=("a", "b"), user_data=b"x", owned=(A0, A1, B0))),
    (2, GroupSubscription(topics=("a", "b"), user_data=b"x", owned=(A0, A1, B0), generation=7)),
    (3, GroupSubscription(topics=("a", "b"), user_data=b"x", owned=(A0, A1, B0), generation=7, rack="r1")),
])  # fmt: skip
def test_a_subscription_keeps_what_its_version_has(version: int, subscription: GroupSubscription) -> None:
    assert read_subscription("m", write_subscription(FULL, version)) == subscription


def test_a_newer_version_is_read_as_ours_and_what_follows_is_ignored() -> None:
    written = write_subscription(FULL)
    newer = b"\0\x09" + written[2:] + b"more"
    assert read_subscription("m", newer, "i") == read_subscription("m", written, "i")


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff", b"\0\1\0\0\0\2\0\1", b"\0\3\x7f\xff\xff\xff"])
def test_malformed_metadata_name_the_member(metadata: bytes) -> None:
    with pytest.raises(MalformedMember, match="member consumer-9 of the group"):
        read_subscription("consumer-9", metadata)


@given(binary(max_size=60))
def test_any_bytes_are_a_subscription_or_malformed(metadata: bytes) -> None:
    with suppress(MalformedMember):
        assert read_subscription("m", metadata).generation >= NO_GENERATION


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_round_trips_in_its_order(version: int) -> None:
    given_out = GroupAssignment(partitions=(B0, A1, A0), user_data=b"\1")
    assert read_assignment(write_assignment(given_out, version)) == given_out


def test_no_bytes_are_no_partitions_and_bad_ones_an_error() -> None:
    assert read_assignment(b"") == GroupAssignment()
    with pytest.raises(MalformedAssignment, match="leader"):
        read_assignment(b"\0\0\0\0\0\5")


def test_sticky_user_data_contain_assignment_and_generation() -> None:
    data = sticky_user_data([B0, A1, A0], 5)
    assert read_sticky_user_data(data) == ((A0, A1, B0), 5)
    assert read_sticky_user_data(data[:-4]) == ((A0, A1, B0), None), "version 0 has no generation"
    assert read_sticky_user_data(None) == read_sticky_user_data(b"") == ((), None)
    assert read_sticky_user_data(b"\0\0\0\x09bad") == ((), NO_GENERATION)


def test_cooperative_user_data_are_a_generation() -> None:
    assert read_cooperative_user_data(cooperative_user_data(12)) == 12
    assert read_cooperative_user_data(None) is None
    assert read_cooperative_user_data(b"\0") == NO_GENERATION
