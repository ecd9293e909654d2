"""While share state is loaded, no group of another type is created under an id that may be a share group's."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.while_loading import LOADING_MAX_S
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.manual_timers import ManualTimers
from tests.support.ports import responded

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
GROUP = "shared"
OTHER = next(f"g{n}" for n in range(1000) if state_partition(f"g{n}") != state_partition(GROUP))
"""A group of another state partition."""

BY_GROUP: dict[int, tuple[int, dict[str, Any]]] = {
    8: (8, {"generation_id_or_member_epoch": -1, "member_id": "", "topics": []}),
    11: (9, {"member_id": "", "protocol_type": "consumer", "protocols": []}),
    28: (3, {"transactional_id": "t", "producer_id": 1, "producer_epoch": 1, "topics": []}),
    68: (0, {"member_id": "", "member_epoch": 0, "topic_partitions": []}),
    88: (0, {"member_id": "m", "member_epoch": 0}),
}
"""API key -> (version, other fields) of requests that would create a group upstream."""


class Requested:
    """A request at its handler."""

    def __init__(self, world: Any, key: int, version: int, fields: dict[str, Any]) -> None:
        header, message = frames.decode_request(world.frame(key, version, **fields))
        call = Call(key, version, header.correlation_id, header.client_id, message, world.client)
        self.key, self.version = key, version
        self.task: Task[bytes | None] = Task(responded(world._served()[key].handler, call), lambda _: None)
        self.task.start()

    @property
    def response(self) -> Any:
        assert self.task.finished, "no answer yet"
        if self.task.error is not None:
            raise self.task.error
        return frames.decode_response(self.key, self.version, memoryview(bytes(self.task.value or b""))[4:])[1]


@pytest.fixture
def timers(world) -> ManualTimers:
    """A clock that moves, and state that is being loaded."""
    timers = ManualTimers()
    world.services.timers = timers
    world.services.gate.close(LOADING, "share state is being loaded")
    return timers


@pytest.mark.parametrize("key", BY_GROUP)
def test_request_that_would_create_a_group_waits_and_gets_a_retriable_error(world, timers, key):
    """14 after a bounded time; nothing was sent to the broker."""
    version, fields = BY_GROUP[key]
    assert world.serves(key, version, **{"group_id": GROUP} | fields)
    requested = Requested(world, key, version, {"group_id": GROUP} | fields)
    assert world.services.gate.requested == {state_partition(GROUP)}, "it is loaded before others"
    timers.advance(HOLD_MAX_S - 0.1)
    assert not requested.task.finished
    timers.advance(0.2)
    assert getattr(requested.response, "error_code", LOADING) == LOADING
    assert world.broker.requested == []


@pytest.mark.parametrize("key", BY_GROUP)
def test_once_loaded_it_goes_where_it_belongs(world, timers, key):
    """The broker gets it if it is no share group, otherwise it is refused as usual."""
    version, fields = BY_GROUP[key]
    forwarded = Requested(world, key, version, {"group_id": OTHER} | fields)
    mine = Requested(world, key, version, {"group_id": GROUP} | fields)
    assert not forwarded.task.finished
    world.group(GROUP)
    world.broker.responses[key] = lambda version, request: registry.message(f"{registry.API_KEYS[key]}Response")(
        topics=[]
    )
    world.services.gate.open()
    assert forwarded.task.finished
    assert forwarded.task.value is None
    assert getattr(mine.response, "error_code", 0) in (0, 23, 69)
    assert not world.serves(key, version, **{"group_id": OTHER} | fields)


@pytest.mark.parametrize("key", [8, 28])
def test_each_partition_of_a_commit_gets_the_error(world, timers, key):
    """14 for every one of them."""
    version, fields = BY_GROUP[key]
    name = registry.API_KEYS[key]
    request = registry.message(f"{name}Request")
    partition = getattr(request, f"{name}RequestPartition")
    topic = getattr(request, f"{name}RequestTopic")
    topics = [topic(name="t", partitions=[partition(partition_index=n, committed_offset=1) for n in (0, 5)])]
    requested = Requested(world, key, version, {"group_id": GROUP} | fields | {"topics": topics})
    timers.advance(HOLD_MAX_S + 0.1)
    (entry,) = requested.response.topics
    assert (entry.name, [(p.partition_index, p.error_code) for p in entry.partitions]) == (
        "t",
        [(0, 14), (5, 14)],
    )


def test_other_state_partitions_are_not_held_up(world, timers):
    """Only the groups that may be in what is loaded."""
    version, fields = BY_GROUP[11]
    world.services.gate.open()
    world.services.gate.close(LOADING, "moved here", (state_partition(GROUP),))
    assert world.services.gate.requested == set()
    assert world.serves(11, version, **{"group_id": GROUP} | fields)
    assert not world.serves(11, version, **{"group_id": OTHER} | fields)
    assert world.serves(42, 2, groups_names=[OTHER, GROUP])
    assert not world.serves(42, 2, groups_names=[OTHER])


def test_state_owned_by_another_proxy_delays_no_request(world):
    """Another proxy owns it, or share groups are off: ordinary groups are served by their brokers."""
    world.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "another proxy")
    version, fields = BY_GROUP[11]
    assert not world.serves(11, version, **{"group_id": GROUP} | fields)


def test_deletion_waits_for_what_is_loaded(world, timers):
    """14, not 69: there may be such a group."""
    requested = Requested(world, 42, 2, {"groups_names": [GROUP]})
    timers.advance(world.services.options.state_wait_s + 0.1)
    assert [result.error_code for result in requested.response.results] == [LOADING]


@pytest.mark.parametrize(("key", "version", "fields"), [(16, 5, {}), (74, 1, {"resource_types": []})])
def test_incomplete_lists_are_not_returned(world, timers, key, version, fields):
    """14 while share groups, or their settings, would be missing from the list."""
    requested = Requested(world, key, version, fields)
    timers.advance(HOLD_MAX_S + 0.1)
    assert requested.response.error_code == LOADING
    assert world.broker.requested == []


def test_loading_that_takes_too_long_is_not_paid_for_by_ordinary_groups(world, timers):
    """After the time limit requests are forwarded again, immediately."""
    version, fields = BY_GROUP[11]
    responses = []
    for _ in range(20):
        requested = Requested(world, 11, version, {"group_id": OTHER} | fields)
        timers.advance(HOLD_MAX_S + 0.1)
        responses.append(requested.task.value is None)
        assert requested.task.finished
    assert responses == sorted(responses)
    assert LOADING_MAX_S / (HOLD_MAX_S + 0.1) - 1 < responses.count(False) < LOADING_MAX_S / (HOLD_MAX_S + 0.1) + 2
