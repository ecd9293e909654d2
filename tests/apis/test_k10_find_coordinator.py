"""FindCoordinator: more cases in tests/tables/find_coordinator.yaml."""

import pytest

from proxy.apis import k10_find_coordinator
from proxy.cluster.addresses import AddressBook
from proxy.wire import registry
from tests.tables.golden import recorded, replaced, rewritten

ANSWER = registry.message("FindCoordinatorResponse")


@pytest.mark.parametrize(("release", "version", "frame"), recorded("FindCoordinator"))
def test_in_a_real_answer_only_the_address_changes(release, version, frame):
    assert rewritten(10, version, frame) == replaced(10, version, frame)


def test_a_coordinator_that_cannot_be_dialled_keeps_its_key():
    """The client has asked for several at once and matches answers by key."""
    coordinator = ANSWER.Coordinator(key="group", node_id=4, host="kafka-4", port=9092, error_message=None)
    answer = ANSWER(coordinators=[coordinator])
    k10_find_coordinator.repair(answer, AddressBook(20000, "h", lambda *_: False))
    (told,) = answer.coordinators
    assert (told.key, told.error_code, told.node_id, told.host, told.port) == ("group", 15, -1, "", -1)
    assert "proxy" in told.error_message
