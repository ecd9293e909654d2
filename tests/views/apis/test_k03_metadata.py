"""Metadata that names a view: made ready, and shown with the partitions of its base."""

import pytest
from kafka_share_proxy.views.apis import k03_metadata
from kafka_share_proxy.views.creation import SHOWN_PARTITIONS_MAX
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.wire import slot_weights
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey

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
def test_only_requests_that_may_name_a_view_are_inspected(world, version):
    """A name is in the bytes; with ids, every id must be known to be plain."""
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
def test_a_view_and_other_topics_are_in_one_response(world, version):
    """The version is the requested one; v0 with views alone must not request all topics."""
    topics = world.metadata("plain", V, "nothing", version=version)
    assert {name: (entry.error_code, len(entry.partitions)) for name, entry in topics.items()} == {
        "plain": (0, 1),
        V: (0, 4),
        "nothing": (3, 0),
    }
    assert set(world.metadata(V, version=version)) == {V}


def test_plain_topics_are_queried_as_by_the_client(world):
    """Auto-creation of other topics remains the client's choice; it is never requested for views."""
    world.metadata("plain", V, version=9, allow_auto_topic_creation=True)
    requested = [(request.allow_auto_topic_creation, [t.name for t in request.topics])
             for key, request in world.cluster.requested if key == 3]  # fmt: skip
    assert (True, ["plain"]) in requested
    assert all(not any(name.startswith("__view.") for name in names) for auto, names in requested if auto)


def test_a_view_requested_by_topic_id_is_shown_as_a_view(world):
    """A client that was restarted knows ids only (KIP-848)."""
    world.ensure(V)
    view_id, plain_id = world.cluster.topics[V].topic_id, world.cluster.topics["plain"].topic_id
    world.catalog.forget(V)
    topics = [{"name": None, "topic_id": each} for each in (view_id, plain_id, b"?" * 16)]
    response = world.call(3, 12, topics=topics)
    shown = {topic.name: (topic.error_code, len(topic.partitions)) for topic in response.topics}
    assert shown == {V: (0, 4), "plain": (0, 1), None: (100, 0)}
    assert world.catalog.view(view_id) is not None
    assert world.catalog.is_plain(plain_id)


@pytest.mark.parametrize("may_create", [True, False])
@pytest.mark.parametrize("version", [0, 3, 4, 9, 12])
def test_a_view_without_a_topic_is_shown_and_not_created(world, version, may_create):
    """It has no topic id. Consumers of librdkafka send allow_auto_topic_creation=false, kcat -L sends true."""
    allowed = {"allow_auto_topic_creation": may_create} if version >= 4 else {}
    response = world.call(3, version, topics=[{"name": V}, {"name": "orders"}], **allowed)
    topics = {topic.name: topic for topic in response.topics}
    assert {name: (topic.error_code, len(topic.partitions)) for name, topic in topics.items()} == {
        V: (0, 4),
        "orders": (0, 1),
    }
    assert bytes(topics[V].topic_id) == bytes(16)
    assert V not in world.cluster.topics
    assert not world.stored
    assert world.catalog.by_name(V) is None
    world.ensure(V)
    (shown,) = world.call(3, version, topics=[{"name": V}], **allowed).topics
    assert (shown.error_code, len(shown.partitions)) == (0, 4)
    assert bytes(shown.topic_id) == (world.cluster.topics[V].topic_id if version >= 10 else bytes(16))


@pytest.mark.parametrize("code", [29, 44])
def test_a_view_that_the_client_may_not_create_has_the_error(world, code):
    """Metadata has the name of the view. JoinGroup and Fetch could only fail later, without the name."""
    world.cluster.codes[ApiKey.CREATE_TOPICS] = code
    (shown,) = world.call(3, 12, topics=[{"name": V}], allow_auto_topic_creation=False).topics
    assert (shown.error_code, len(shown.partitions)) == (code, 0)
    (noted,) = world.noted("view-refused")
    assert ("grant CREATE on this topic" in noted["reason"]) is (code == 29)


@pytest.mark.parametrize("code", [7, 41, 89])
def test_a_controller_that_is_busy_hides_no_view(world, code):
    """A time-out, a controller that moves, a quota: it may be created a moment later."""
    world.cluster.codes[ApiKey.CREATE_TOPICS] = code
    (shown,) = world.call(3, 12, topics=[{"name": V}]).topics
    assert (shown.error_code, len(shown.partitions)) == (0, 4)


def test_a_view_that_was_created_a_moment_ago_is_waited_for(world):
    """Another broker created it, and this one does not know yet: it is shown with its topic id, and created once."""
    world.ensure(V)
    world.cluster.late = 1
    (shown,) = world.call(3, 12, topics=[{"name": V}]).topics
    assert bytes(shown.topic_id) == world.cluster.topics[V].topic_id
    assert [request.validate_only for key, request in world.cluster.requested if key == 19] == [False, True]


def test_one_request_shows_a_bounded_number_of_partitions_that_do_not_exist(world):
    """A name is short. Further views get a retriable error. Views with a topic do not count."""
    world.cluster.make("wide", 20)
    names = [f"__view.r{slots}.wide" for slots in range(400, 410)]
    world.ensure(names[0])
    topics = world.metadata(*names)
    codes = [topics[name].error_code for name in names]
    assert codes == [0, 0, 0, *[5] * 7]
    assert sum(len(topics[name].partitions) for name in names[1:]) <= SHOWN_PARTITIONS_MAX
    requested = [request for key, request in world.cluster.requested if key == 19 and request.validate_only]
    assert [topic.name for request in requested for topic in request.topics] == names[1:3]


def test_a_view_named_twice_is_shown_once(world):
    """It is named by name and by id."""
    world.ensure(V)
    view_id = world.cluster.topics[V].topic_id
    response = world.call(3, 12, topics=[{"name": V}, {"name": None, "topic_id": view_id}, {"name": V}])
    assert [topic.name for topic in response.topics] == [V]


def test_weights_of_a_plan_are_sent_to_clients_that_request_them(world):
    """From v9 on, which has tagged fields; responses to other clients do not change."""
    world.catalog.add_plan(Plan("hot", (0, 9), weights=(0.75, 0.25)))
    world.catalog.add_plan(Plan("bare", (0, 9)))
    names = ("__view.phot.orders", "__view.pbare.orders", V, "plain")
    shown = {
        version: world.metadata(*names, version=version, unknown_tags=(slot_weights.REQUESTED,)) for version in (9, 12)
    }
    shown[0] = world.metadata(*names, version=12)
    weights = {
        version: [slot_weights.weights_in(topics[name].unknown_tags) for name in names]
        for version, topics in shown.items()
    }
    assert weights == {9: [(0.75, 0.25), (), (), ()], 12: [(0.75, 0.25), (), (), ()], 0: [(), (), (), ()]}
