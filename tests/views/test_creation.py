"""Views are made ready over the right connection, once, and tied to one base."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.creation import Missing
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.model.slots import RangeCut
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost

from tests.support.view_broker import Client, Cluster, World

V = "__view.r4.orders"
CREATE, DELETE, GROW = 19, 20, 37


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 2)
    return world


def test_a_view_that_is_missing_is_made_with_a_partition_for_every_slot(world: World) -> None:
    """Replicated as its base, nothing can be written into it, and it is known and tied to its base afterwards."""
    assert world.ensure(V) == {V: 0}
    view_topic = world.cluster.topics[V]
    assert (view_topic.partitions, view_topic.replicas) == (8, [1, 2])
    assert view_topic.configs["max.message.bytes"] == "0"
    view = world.catalog.by_name(V)
    assert view is not None
    assert (view.topic_id, view.base_id) == (view_topic.topic_id, world.cluster.topics["orders"].topic_id)
    assert (view.base_partitions, view.slots) == (2, 4)
    assert list(world.stored) == [state_records.binding_key(V)]
    assert world.noted("view-created") == [{"view": V, "partitions": 8}]


def test_a_view_that_is_ready_costs_one_request(world: World) -> None:
    """Nothing is made or stored again."""
    world.ensure(V)
    requested, stored = len(world.cluster.requested), dict(world.stored)
    assert world.ensure(V) == {V: 0}
    assert len(world.cluster.requested) == requested + 1
    assert world.stored == stored


def test_the_response_is_held_until_the_broker_shows_the_view(world: World) -> None:
    """LEADER_NOT_AVAILABLE would be an error event in librdkafka."""
    world.cluster.late = 3
    assert world.ensure(V) == {V: 0}
    assert world.cluster.count(CREATE) == 1


def test_a_view_that_does_not_appear_in_time_is_a_retriable_error(world: World) -> None:
    """5, after the time that the setting gives it."""
    world.cluster.late = 10_000
    began = world.timers.now()
    assert world.ensure(V) == {V: ErrorCode.LEADER_NOT_AVAILABLE}
    assert world.timers.now() - began == pytest.approx(Views().create_wait_s, abs=1)
    assert world.catalog.by_name(V) is None


def test_a_refusal_of_the_broker_is_returned(world: World) -> None:
    """The ACL on `__view.*` decides who may make views."""
    world.cluster.codes[CREATE] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.ensure(V) == {V: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert world.cluster.count(CREATE) == 1


def test_the_brokers_default_replication_is_used_if_that_of_the_base_is_impossible(world: World) -> None:
    """Brokers may be down or gone."""
    world.cluster.codes[CREATE] = [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert world.ensure(V) == {V: 0}
    assert world.cluster.topics[V].replicas == [1]


def test_a_view_without_a_base_is_unknown_and_nothing_is_made(world: World) -> None:
    """3; also where there was one a moment ago."""
    assert world.ensure("__view.r4.nothing") == {"__view.r4.nothing": 3}
    world.ensure(V)
    del world.cluster.topics["orders"]
    assert world.ensure(V) == {V: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.catalog.by_name(V) is None
    assert world.cluster.count(CREATE) == 1


def test_a_client_without_describe_on_the_base_does_not_see_the_view(world: World) -> None:
    """29, and the view stays known for those who may."""
    world.ensure(V)
    world.cluster.hidden.add("orders")
    assert world.ensure(V) == {V: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert world.catalog.by_name(V) is not None


def test_names_that_no_view_can_have_are_refused_without_a_request(world: World) -> None:
    """17; other topics are left out."""
    assert world.ensure("__view.r0.orders", "orders", "__view.r2000.orders") == {
        "__view.r0.orders": 17,
        "__view.r2000.orders": 17,
    }
    assert world.cluster.requested == []


def test_limits_on_slots_and_partitions_hold() -> None:
    """Settings of views."""
    world = World(Views.model_construct(slots_max=8, partitions_max=16))
    world.cluster.make("orders", 3)
    assert world.ensure("__view.r9.orders", "__view.r8.orders", "__view.r4.orders") == {
        "__view.r9.orders": 17,
        "__view.r8.orders": 17,
        "__view.r4.orders": 0,
    }


def test_a_view_grows_with_its_base(world: World) -> None:
    """Under the proxy's own identity if that may, else over the client's connection."""
    world.ensure(V)
    world.cluster.topics["orders"].partitions = 3
    assert world.ensure(V) == {V: 0}
    assert world.cluster.topics[V].partitions == 12
    view = world.catalog.by_name(V)
    assert view is not None
    assert view.base_partitions == 3
    assert world.noted("view-grown") == [{"view": V, "partitions": 12}]


def test_a_view_that_may_not_grow_is_shown_with_its_partitions(world: World) -> None:
    """The log reports that it needs attention."""
    world.ensure(V)
    world.cluster.topics["orders"].partitions = 3
    world.cluster.codes[GROW] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.ensure(V) == {V: 0}
    view = world.catalog.by_name(V)
    assert view is not None
    assert view.base_partitions == 2
    assert [note["view"] for note in world.noted("view-not-grown")] == [V]


def test_a_view_with_too_many_partitions_is_refused(world: World) -> None:
    """Partitions are never removed; it is a foreign topic, or was created in a wrong way."""
    world.cluster.make(V, 9)
    assert world.ensure(V) == {V: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_the_view_of_a_recreated_base_is_replaced(world: World) -> None:
    """The old topic is deleted by its id, with the offsets committed on it, and another one is made."""
    world.ensure(V)
    before = world.cluster.topics[V].topic_id
    world.cluster.make("orders", 1)
    assert world.ensure(V) == {V: 0}
    after = world.cluster.topics[V]
    assert after.topic_id != before
    assert after.partitions == 4
    assert world.catalog.view(before) is None
    assert world.catalog.binding(V) == Binding(after.topic_id, world.cluster.topics["orders"].topic_id)


def test_until_the_old_view_can_be_deleted_it_is_not_shown(world: World) -> None:
    """Offsets of the old base mean other records of the new one: 3."""
    world.ensure(V)
    world.cluster.make("orders", 2)
    world.cluster.codes[DELETE] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.ensure(V) == {V: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.catalog.by_name(V) is None
    assert "made anew" in world.noted("view-refused")[-1]["reason"]


class Slow(Client):
    """Client that responds on demand."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.held: list[tuple[Promise[memoryview], int, int, bytes]] = []

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        promise: Promise[memoryview] = Promise()
        self.held.append((promise, key, version, body))
        return promise

    def go_on(self) -> None:
        promise, key, version, body = self.held.pop(0)
        promise.set(super().send_request(key, version, body).result())


def test_of_two_concurrent_requests_for_a_view_one_creates_it(world: World) -> None:
    """The other waits and finds it."""
    first, second = Slow(world.cluster), Slow(world.cluster)
    tasks: list[Task[Any]] = [Task(world.creation.ensure(client, [V]), lambda _: None) for client in (first, second)]
    for task in tasks:
        task.start()
    first.go_on()  # it saw that there is none, and requests it
    second.go_on()  # so did this one, and looks again
    world.timers.ring()
    assert [key for _, key, _, _ in first.held + second.held] == [CREATE, 3]
    while not all(task.finished for task in tasks):
        held = [client for client in (first, second) if client.held]
        if held:
            held[0].go_on()
        else:
            world.timers.ring()
    assert world.cluster.count(CREATE) == 1


def test_a_client_that_leaves_in_the_middle_leaves_no_task(world: World) -> None:
    """The next one makes the view."""
    client = Slow(world.cluster)
    task: Task[Any] = Task(world.creation.ensure(client, [V]), lambda _: None)
    task.start()
    client.go_on()
    assert world.creation.busy == {V}
    task.cancel()
    assert world.creation.busy == set()
    assert world.ensure(V) == {V: 0}


def test_a_plan_is_known_or_the_view_is_not(world: World) -> None:
    """17 without one; with it the view has as many slots as the plan has ranges."""
    planned = "__view.phot.orders"
    assert world.ensure(planned) == {planned: ErrorCode.INVALID_TOPIC_EXCEPTION}
    world.catalog.add_plan(Plan("hot", (0, 5, 10)))
    assert world.ensure(planned) == {planned: 0}
    assert world.cluster.topics[planned].partitions == 6
    view = world.catalog.by_name(planned)
    assert view is not None
    assert view.cut == RangeCut((0, 5, 10))


def test_stored_bindings_are_read_before_a_new_view_is_served(world: World) -> None:
    """Another proxy may have tied it to an earlier base; without a response in time: retriable."""
    world.cluster.make(V, 8)

    class Late:
        off = ""

        def synced(self) -> Promise[None]:
            return Promise()

    world.creation.store = Late()  # type: ignore[assignment]
    assert world.ensure(V) == {V: ErrorCode.LEADER_NOT_AVAILABLE}
    assert world.catalog.binding(V) is None


def test_a_binding_that_cannot_be_stored_is_no_reason_to_refuse(world: World) -> None:
    """It only matters when the base is created again; the log says so."""

    class Broken:
        off = ""

        def synced(self) -> Promise[None]:
            done: Promise[None] = Promise()
            done.set(None)
            return done

        def store(self, key: bytes, value: bytes | None) -> Promise[None]:
            failed: Promise[None] = Promise()
            failed.fail(UpstreamLost("no leader"))
            return failed

    world.creation.store = Broken()  # type: ignore[assignment]
    assert world.ensure(V) == {V: 0}
    assert world.noted("view-binding-not-stored") == [{"view": V, "reason": "no leader"}]
    assert world.catalog.binding(V) is not None


def test_growing_and_deleting_are_tried_under_the_proxys_own_identity_first(world: World) -> None:
    """Creating is not: there the client's rights decide."""
    own = Cluster()
    own.topics = world.cluster.topics
    world.creation.own = Client(own)
    world.ensure(V)
    world.cluster.topics["orders"].partitions = 3
    world.ensure(V)
    assert (own.count(GROW), world.cluster.count(GROW), world.cluster.count(CREATE)) == (1, 0, 1)
    own.codes[GROW] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world.cluster.topics["orders"].partitions = 4
    assert world.ensure(V) == {V: 0}
    assert (own.count(GROW), world.cluster.count(GROW)) == (2, 1)
    assert world.cluster.topics[V].partitions == 16


def test_ids_are_found_to_be_views_or_plain(world: World) -> None:
    """Once; what the broker does not know stays unknown."""
    world.ensure(V)
    view_id, base_id = world.cluster.topics[V].topic_id, world.cluster.topics["orders"].topic_id
    world.catalog.forget(V)
    world.run(world.creation.resolve(world.client, [view_id, base_id, b"?" * 16]))
    assert world.catalog.view(view_id) is not None
    assert world.catalog.is_plain(base_id)
    assert not world.catalog.is_plain(b"?" * 16)
    requested = len(world.cluster.requested)
    world.run(world.creation.resolve(world.client, [view_id, base_id]))
    assert len(world.cluster.requested) == requested


def test_without_create_a_missing_view_stays_missing(world: World) -> None:
    """The watch creates only requested views."""
    names, _ = world.run(world.creation.parse_names([V]))
    outcomes = world.run(world.creation.prepare(world.client, names, missing=Missing.LEAVE))
    assert outcomes[V].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert V not in world.cluster.topics


def test_a_deadline_that_is_never_reached_ends_nothing() -> None:
    """The look waits for its timer, and for nothing else."""
    world = World()
    world.cluster.make("orders", 1)
    world.cluster.late = 1
    task: Task[Any] = Task(world.creation.ensure(world.client, [V]), lambda _: None)
    task.start()
    assert not task.finished
    task.cancel()


def test_a_request_to_a_controller_that_moves_or_has_a_quota_is_repeated(world: World) -> None:
    """41 and 89, as long as there is time."""
    world.cluster.codes[CREATE] = [ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert world.ensure(V) == {V: 0}
    assert world.cluster.count(CREATE) == 3
    world.cluster.codes[CREATE] = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert world.ensure("__view.r2.orders") == {"__view.r2.orders": 5}


def test_a_view_that_is_shown_counts_as_known_though_it_has_no_topic(world: World) -> None:
    """A producer may write to it now, so Produce is looked into."""
    reported: list[bool] = []
    world.catalog.on_change(lambda: reported.append(world.catalog.is_empty))
    world.metadata(V)
    world.metadata(V)
    assert reported == [False]


def test_a_view_that_was_deleted_is_forgotten_when_it_is_shown(world: World) -> None:
    """The next request that needs it creates it."""
    world.ensure(V)
    del world.cluster.topics[V]
    assert world.metadata(V)[V].error_code == 0
    assert world.catalog.by_name(V) is None
    assert V not in world.cluster.topics


def test_clients_create_a_bounded_number_of_views() -> None:
    """44 above views.views_max, in Metadata too. Views that exist, or replace their topic, are not new."""
    world = World(Views.model_construct(views_max=3))
    world.cluster.make("orders", 1)
    names = [f"__view.r{slots}.orders" for slots in range(2, 7)]
    assert world.ensure(*names) == dict(zip(names, (0, 0, 0, 44, 44), strict=True))
    assert {name: entry.error_code for name, entry in world.metadata(*names).items()} == dict(
        zip(names, (0, 0, 0, 44, 44), strict=True)
    )
    del world.cluster.topics[names[0]]
    assert world.ensure(names[0]) == {names[0]: 0}
    assert "views.views_max" in world.noted("view-refused")[-1]["reason"]
