"""A view is shown with the partitions of its base: through Metadata, the way clients see it."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.loop.slices import Work
from kafka_share_proxy.views.apis.metadata_entries import metadata_entry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_broker import World

V = "__view.r2.orders"


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 2, replicas=[2, 1], epoch=7)
    return world


def parts(entry: Any) -> list[tuple[int, int, int]]:
    return [(each.partition_index, each.leader_id, each.leader_epoch) for each in entry.partitions]


def test_leaders_epochs_and_replicas_are_those_of_the_base(world: World) -> None:
    """Clients then fetch from the right broker, and every epoch they hold is one of the base."""
    entry = world.metadata(V)[V]
    assert parts(entry) == [(0, 2, 7), (1, 2, 7), (2, 1, 7), (3, 1, 7)]
    first = entry.partitions[0]
    assert (list(first.replica_nodes), list(first.isr_nodes), list(first.offline_replicas)) == ([2, 1], [2], [1])


def test_an_entry_has_the_id_and_operations_of_the_view_and_is_never_internal(world: World) -> None:
    """Commits go by the view's id; internal topics break assignors."""
    world.ensure(V)
    entry = world.metadata(V, include_topic_authorized_operations=True)[V]
    assert bytes(entry.topic_id) == world.cluster.topics[V].topic_id
    assert entry.topic_authorized_operations == 264
    assert entry.is_internal is False


def test_addresses_in_the_response_are_the_proxys(world: World) -> None:
    """Every other response is rewritten alike."""
    response = world.call(3, 12, topics=[{"name": V}])
    assert {(broker.host, broker.port) for broker in response.brokers} == {
        ("proxy.example", 20001),
        ("proxy.example", 20002),
    }


def test_an_entry_with_an_error_has_no_partitions(world: World) -> None:
    """3 without a base, 17 for what no view is called."""
    topics = world.metadata("__view.r2.nothing", "__view.junk", V)
    assert {name: (entry.error_code, len(entry.partitions)) for name, entry in topics.items()} == {
        "__view.r2.nothing": (3, 0),
        "__view.junk": (17, 0),
        V: (0, 4),
    }


def test_a_view_whose_base_went_keeps_its_id_in_the_response(world: World) -> None:
    """It has an error and no partitions (views/README.md rule 52)."""
    world.ensure(V)
    view_id = world.cluster.topics[V].topic_id
    del world.cluster.topics["orders"]
    entry = world.metadata(V)[V]
    assert entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (bytes(entry.topic_id), list(entry.partitions)) == (view_id, [])


def test_a_client_gets_its_own_result_despite_concurrent_ones(world: World) -> None:
    """Never a topic without error and without partitions: who assigns partitions would assign none."""

    async def prepare_and_forget() -> Any:
        (outcome,) = (await world.creation.prepare(world.client, (await world.creation.parse_names([V]))[0])).values()
        world.catalog.forget(V)
        return await metadata_entry(Work(), outcome)

    entry = world.run(prepare_and_forget())
    assert (entry.error_code, len(entry.partitions)) == (0, 4)


def test_a_view_that_could_not_grow_has_the_partitions_of_its_topic(world: World) -> None:
    """Not a partition more than the broker would take commits for."""
    world.ensure(V)
    world.cluster.topics["orders"].partitions = 3
    world.cluster.codes[ApiKey.CREATE_PARTITIONS] = ErrorCode.POLICY_VIOLATION
    assert [index for index, _, _ in parts(world.metadata(V)[V])] == [0, 1, 2, 3]
