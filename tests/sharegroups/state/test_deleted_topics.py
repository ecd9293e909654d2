"""Share partitions of deleted topics: dropped when it is certain, and not before."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.state import deleted_topics
from kafka_share_proxy.sharegroups.state.deleted_topics import CHECK_EVERY_S, DeletedTopics
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import SlowJournal, World


@pytest.fixture
def world() -> World:
    return started(World())


def started(share_world: World) -> World:
    """Two topics with state of two groups, one of them at rest, and the collector."""
    for name in ("gone", "kept"):
        topic = share_world.cluster.create(name, leaders=(1, 2))
        for group_id in ("g", "h"):
            share_world.services.coordinator.add_group(group_id)
            share_world.member(group_id).fetch(topic, wait_ms=0)
    share_world.services.coordinator.rest_idle()
    share_world.services.coordinator.share(key(share_world, "gone", "g", 0))
    share_world.services.coordinator.rest_idle()
    assert share_world.services.coordinator.resting > 0
    DeletedTopics(share_world.services).start()
    return share_world


def key(world, name, group_id, partition):
    return ShareKey(group_id, world.cluster.topics[name].topic_id, partition)


def held(world):
    """Topic names by what is in memory and what is stored."""
    names = {topic.topic_id: topic.name for topic in world.known}
    memory = {names[topic_id] for _, topic_id in world.services.coordinator.topics()}
    stored = {names[each.topic_id] for each in world.journal.values if each.kind == "partition"}
    return memory, stored


@pytest.fixture(autouse=True)
def _known(request):
    """Remember topics beyond their deletion."""
    world = request.getfixturevalue("world")
    world.known = list(world.cluster.topics.values())


def looks(world, count):
    for _ in range(count):
        world.timers.advance(CHECK_EVERY_S)


def test_state_of_a_deleted_topic_goes_after_two_checks(world):
    """Memory and topic lose it, for every group; all other state stays."""
    looks(world, 3)
    assert held(world) == ({"gone", "kept"}, {"gone", "kept"})
    del world.cluster.topics["gone"]
    looks(world, 1)
    assert held(world) == ({"gone", "kept"}, {"gone", "kept"}), "one look proves nothing"
    looks(world, 1)
    assert held(world) == ({"kept"}, {"kept"})
    ((_, context),) = [note for note in world.notes if note[0] == "share-topics-deleted"]
    assert context == {"topics": 1, "groups": 2, "partitions": 2}
    looks(world, 3)
    assert held(world) == ({"kept"}, {"kept"})


def test_one_broker_that_knows_the_topic_is_enough(world, monkeypatch):
    """One that has not caught up, whichever it is, takes nothing away."""
    topic = world.cluster.topics["gone"]
    send_request = world.own.send_request

    def lagging(node_id, api, request):
        world.cluster.topics.pop("gone", None)
        if node_id == 3:
            world.cluster.topics["gone"] = topic
        return send_request(node_id, api, request)

    monkeypatch.setattr(world.own, "send_request", lagging)
    looks(world, 5)
    assert held(world)[1] == {"gone", "kept"}


def test_broker_that_does_not_respond_settles_nothing(world):
    """It is reported, and checked again later."""
    del world.cluster.topics["gone"]
    looks(world, 1)
    world.own.refuses = "no route"
    looks(world, 3)
    assert held(world)[1] == {"gone", "kept"}
    assert ("share-topics-not-checked", {"reason": "no route"}) in world.notes
    world.own.refuses = None
    looks(world, 2)
    assert held(world) == ({"kept"}, {"kept"})


def test_topic_that_is_back_at_one_check_is_not_deleted(world):
    """Two looks in a row."""
    topic = world.cluster.topics["gone"]
    for _ in range(3):
        world.cluster.topics.pop("gone")
        looks(world, 1)
        world.cluster.topics["gone"] = topic
        looks(world, 1)
    assert held(world)[1] == {"gone", "kept"}


def test_hidden_topic_stays(world):
    """The proxy may not see it: 29, which is not "unknown"."""
    world.cluster.topics["gone"].bits = 0
    looks(world, 4)
    assert held(world)[1] == {"gone", "kept"}


def test_without_an_identity_nothing_is_certain(world):
    """No broker can be queried."""
    world.services.own = None
    del world.cluster.topics["gone"]
    looks(world, 4)
    assert held(world)[1] == {"gone", "kept"}


def test_topics_beyond_one_request_are_queried_in_order(world, monkeypatch):
    """Each has its look, and what is suspected has its second."""
    monkeypatch.setattr(deleted_topics, "TOPICS_AT_ONCE", 1)
    del world.cluster.topics["gone"]
    looks(world, 4)
    assert held(world) == ({"kept"}, {"kept"})


def test_state_that_cannot_be_deleted_now_is_deleted_later():
    """The journal refuses: it stays in memory too, so that it is tried again."""
    world = started(World(journal=SlowJournal()))
    world.known = list(world.cluster.topics.values())
    del world.cluster.topics["gone"]
    world.journal.slow = True
    looks(world, 2)
    for _ in range(2):
        world.journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert held(world) == ({"gone", "kept"}, {"gone", "kept"})
    world.journal.slow = False
    looks(world, 2)
    assert held(world) == ({"kept"}, {"kept"})
    assert StateKey("group", "g") not in world.journal.values, "groups are none of its business"


def test_fault_of_ours_does_not_end_the_checks(world, monkeypatch):
    """The exception is raised in the fault handler, and the next check is planned all the same."""

    def broken(node_id, api, request):
        raise RuntimeError("bug")

    monkeypatch.setattr(world.own, "send_request", broken)
    with pytest.raises(RuntimeError, match="bug"):
        looks(world, 1)
    monkeypatch.undo()
    del world.cluster.topics["gone"]
    looks(world, 3)
    assert held(world) == ({"kept"}, {"kept"})


def test_deletion_with_unknown_outcome_does_not_end_the_checks():
    """It holds when it is stored; until then the other topics are looked after all the same."""
    world = started(World(journal=SlowJournal()))
    world.known = list(world.cluster.topics.values())
    del world.cluster.topics["gone"]
    looks(world, 1)
    world.journal.slow = True
    looks(world, 1)
    requested = world.cluster.count(3)
    looks(world, 2)
    assert world.cluster.count(3) > requested
    assert held(world)[1] == {"gone", "kept"}
    world.journal.slow = False
    while world.journal.appends:
        world.journal.confirm()
    looks(world, 2)
    assert held(world) == ({"kept"}, {"kept"})
