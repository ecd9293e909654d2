"""FindCoordinator: more cases in tests/tables/find_coordinator.yaml."""

import pytest
from kafka_share_proxy.forwarding.apis import k10_find_coordinator
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World
from tests.tables.golden import recorded, replaced, rewritten

RESPONSE = registry.message("FindCoordinatorResponse")


@pytest.mark.parametrize(("release", "version", "frame"), recorded("FindCoordinator"))
def test_in_a_real_response_only_the_address_changes(release, version, frame):
    assert rewritten(10, version, frame) == replaced(10, version, frame)


def test_a_coordinator_that_cannot_be_dialled_keeps_its_key():
    """The client has requested several together and matches responses by key."""
    coordinator = RESPONSE.Coordinator(key="group", node_id=4, host="kafka-4", port=9092, error_message=None)
    response = RESPONSE(coordinators=[coordinator])
    k10_find_coordinator.repair(response, AddressBook(20000, "h", lambda *_: False))
    (entry,) = response.coordinators
    assert (entry.key, entry.error_code, entry.node_id, entry.host, entry.port) == (
        "group",
        15,
        -1,
        "",
        -1,
    )
    assert "proxy" in entry.error_message


def test_a_long_request_is_sent_in_parts_and_has_one_response():
    """Keys keep their order; a coordinator without a listener here keeps its key, and a refused one its code."""
    world = World()
    keys = [f"group-{number}" for number in range(2 * k10_find_coordinator.KEYS_AT_ONCE + 1)]
    world.cluster.group_errors[keys[7]] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    message = registry.message("FindCoordinatorRequest")(key_type=0, coordinator_keys=keys)
    connection = world.member().connection
    call = Call(10, 6, 7, "c", message, connection)
    task = Task(k10_find_coordinator.handle(call, world.services.book), lambda _: None)
    task.start()
    assert task.finished
    response = frames.decode_response(10, 6, memoryview(task.value)[4:])[1]
    assert [each.key for each in response.coordinators] == keys
    assert response.coordinators[7].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    ours = world.services.book.ours_of(1)
    assert {(each.host, each.port) for each in response.coordinators} == {ours}


def test_only_long_requests_are_sent_in_parts():
    longest = bytes(k10_find_coordinator.LONG_BYTES)
    wants = k10_find_coordinator.IN_PARTS.served(World().services.book).wants
    assert wants is not None
    is_long = wants.matcher(10, 6)
    assert not is_long(memoryview(longest))
    assert is_long(memoryview(longest + b"x"))
