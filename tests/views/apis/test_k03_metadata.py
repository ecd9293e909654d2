"""Metadata that names a view: made ready, and shown with the partitions of its base."""

import pytest

from proxy.views.apis import k03_metadata
from proxy.wire import registry
from tests.support.view_broker import World

VERSIONS = range(registry.versions(3)[0], registry.versions(3)[1] + 1)
V = "__view.r4.orders"


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 1)
    world.cluster.make("plain", 1)
    return world


@pytest.mark.parametrize("version", VERSIONS)
def test_only_requests_that_may_name_a_view_are_looked_at(world, version):
    """By name it is told from the bytes; by id every id must be known to be no view's."""
    assert world.is_served(3, version, topics=[{"name": "plain"}, {"name": V}])
    assert not world.is_served(3, version, topics=[{"name": "plain"}] * 200)
    assert not world.is_served(3, version, topics=[{"name": "x"}])
    assert not world.is_served(3, version, topics=[] if version == 0 else None)
    assert not world.is_served(3, version, topics=[])
    if version >= k03_metadata.BY_ID_SINCE:
        topic_id = world.cluster.topics["plain"].topic_id
        by_id = [{"name": None, "topic_id": topic_id}, {"name": "orders"}]
        assert world.is_served(3, version, topics=by_id)
        world.catalog.learn_plain(topic_id)
        assert not world.is_served(3, version, topics=by_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_view_and_other_topics_are_answered_together(world, version):
    """In the version that was asked for; v0 with views alone must not ask for all topics."""
    found = world.metadata("plain", V, "nothing", version=version)
    assert {name: (entry.error_code, len(entry.partitions)) for name, entry in found.items()} == {
        "plain": (0, 1),
        V: (0, 4),
        "nothing": (3, 0),
    }
    assert set(world.metadata(V, version=version)) == {V}


def test_what_is_no_view_is_asked_as_the_client_did(world):
    """Auto-creation of other topics stays the client's wish; of views it is never asked."""
    world.metadata("plain", V, version=9, allow_auto_topic_creation=True)
    asked = [(request.allow_auto_topic_creation, [t.name for t in request.topics])
             for key, request in world.cluster.asked if key == 3]  # fmt: skip
    assert (True, ["plain"]) in asked
    assert all(not any(name.startswith("__view.") for name in names) for auto, names in asked if auto)


def test_by_id_the_answer_tells_that_a_topic_is_a_view(world):
    """A client that was restarted knows ids only (KIP-848)."""
    world.ensure(V)
    view_id, plain_id = world.cluster.topics[V].topic_id, world.cluster.topics["plain"].topic_id
    world.catalog.forget(V)
    topics = [{"name": None, "topic_id": each} for each in (view_id, plain_id, b"?" * 16)]
    answer = world.call(3, 12, topics=topics)
    found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
    assert found == {V: (0, 4), "plain": (0, 1), None: (100, 0)}
    assert world.catalog.view(view_id) is not None
    assert world.catalog.is_plain(plain_id)


@pytest.mark.parametrize("version", [4, 9, 12])
def test_a_view_is_not_made_where_auto_creation_is_not_allowed(world, version):
    """It is unknown, as a topic would be: so ask administrators, who only look, and consumers that are set so."""
    answer = world.call(3, version, topics=[{"name": V}, {"name": "orders"}], allow_auto_topic_creation=False)
    assert {topic.name: topic.error_code for topic in answer.topics} == {V: 3, "orders": 0}
    assert V not in world.cluster.topics
    assert world.cluster.count(19) == 0
    world.ensure(V)
    (shown,) = world.call(3, version, topics=[{"name": V}], allow_auto_topic_creation=False).topics
    assert (shown.error_code, len(shown.partitions)) == (0, 4)


@pytest.mark.parametrize("version", [0, 3])
def test_before_there_was_a_choice_a_view_is_made(world, version):
    """The field came with v4; before, every Metadata made topics."""
    (shown,) = world.call(3, version, topics=[{"name": V}]).topics
    assert (shown.error_code, len(shown.partitions)) == (0, 4)


def test_a_view_named_twice_is_shown_once(world):
    """By name and by id."""
    world.ensure(V)
    view_id = world.cluster.topics[V].topic_id
    answer = world.call(3, 12, topics=[{"name": V}, {"name": None, "topic_id": view_id}, {"name": V}])
    assert [topic.name for topic in answer.topics] == [V]
