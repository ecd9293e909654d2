"""Selection of requests by their bytes: not those of unknown groups without a text."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.commits.early_matches import WORDS, may_be_individual
from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup
from kafka_share_proxy.forwarding.dispatch.request_inspection import GroupMatch
from kafka_share_proxy.forwarding.walk.walking import Pending, RequestWalk, Table
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

from tests.support.commit_world import CommitWorld

ALL = [(key, version) for key in WORDS for version in range(registry.versions(key)[0], registry.versions(key)[1] + 1)]


class Expecting:
    """Expected entry of a forwarded commit."""

    rewrite = None


def request(key: int, version: int, group: str = "g", metadata: str | None = "") -> bytes:
    name = registry.API_KEYS[key]
    message = registry.message(f"{name}Request")
    if key in {8, 28}:
        topic, partition = (getattr(message, f"{name}Request{part}") for part in ("Topic", "Partition"))
        body = message(
            group_id=group,
            topics=[topic(name="t", partitions=[partition(partition_index=0, committed_metadata=metadata)])],
        )
        if key == 28:
            body.transactional_id = "x"
    elif key == 9 and version >= 8:
        body = message(groups=[message.OffsetFetchRequestGroup(group_id=group, topics=None)])
    else:
        body = message(group_id=group, topics=[])
    return frames.request(key, version, 1, "c", body)


class Looked:
    """The looks of a proxy, as they stand in its routes."""

    def __init__(self) -> None:
        self.world = CommitWorld()
        self.services = self.world.services

    def is_selected(self, data: bytes) -> bool:
        """Return the result of the match, after the fast selection."""
        key, version = (int.from_bytes(data[at : at + 2], "big") for at in (4, 6))
        kind = may_be_individual(key, self.services)
        assert isinstance(kind, ByKnownGroup)
        wants = kind.matcher(key, version)

        def inspect(buffer: memoryview, at: int, end: int, _frame_end: int) -> Any:
            return None if wants(buffer[at + 4 : end]) else Expecting

        rule = GroupMatch(kind, (key, version), inspect, Expecting)  # type: ignore[arg-type]
        walk = RequestWalk(Pending(), Table({}, {data[4:8]: rule}, object()), 1 << 20)  # type: ignore[arg-type]
        passed = walk.receive(memoryview(bytearray(data)), 0, len(data)) == len(data)
        assert wants(memoryview(data)[4:]) == (not passed), "the look says the same as what passes at once"
        return not passed


@pytest.fixture
def looked() -> Looked:
    return Looked()


@pytest.mark.parametrize(("key", "version"), ALL)
def test_request_of_an_unknown_group_is_forwarded(looked: Looked, key: int, version: int) -> None:
    """Other groups may be known or not."""
    assert not looked.is_selected(request(key, version))
    looked.services.followed.groups["h"] = 0
    assert not looked.is_selected(request(key, version))
    assert looked.is_selected(request(key, version, "h"))


@pytest.mark.parametrize(("key", "version"), ALL)
def test_request_of_a_group_that_is_held_here_is_selected(looked: Looked, key: int, version: int) -> None:
    """Before the tail has read its mark."""
    looked.services.held.group("g")
    assert looked.is_selected(request(key, version))


@pytest.mark.parametrize(("key", "version"), ALL)
def test_every_request_of_a_doubtful_group_is_selected(looked: Looked, key: int, version: int) -> None:
    looked.services.followed.uncertain.update(dict.fromkeys(range(50), False))
    assert looked.is_selected(request(key, version))
    looked.services.followed.uncertain.clear()
    assert not looked.is_selected(request(key, version))


@pytest.mark.parametrize("key", [8, 28])
@pytest.mark.parametrize(
    ("metadata", "is_selected"), [("ic/1;5-7", True), ("ic/2;x", True), ("mine", False), ("", False)]
)
def test_text_is_selected_in_every_group(looked: Looked, key: int, metadata: str, is_selected: bool) -> None:
    assert looked.is_selected(request(key, 3, metadata=metadata)) == is_selected


def test_list_of_several_groups_is_selected_where_one_of_them_is_known(looked: Looked) -> None:
    """All of their ids are read."""
    message = registry.message("OffsetFetchRequest")
    groups = [message.OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b")]
    data = frames.request(9, 8, 1, "c", message(groups=groups))
    assert not looked.is_selected(data)
    looked.services.followed.groups["h"] = 0
    assert not looked.is_selected(data)
    looked.services.followed.groups["b"] = 0
    assert looked.is_selected(data)
