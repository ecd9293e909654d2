"""The resources that requests about configurations list."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.apis.group_resources import by_group_resource, names_group_resource
from kafka_share_proxy.wire.definitions import registry

MESSAGE = registry.message("DescribeConfigsRequest")
SERVICES: Any = None


def request(*resources: tuple[int, str]) -> Any:
    return MESSAGE(
        resources=[MESSAGE.DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in resources]
    )


@pytest.mark.parametrize(("resources", "is_picked"), [(((2, "t"),), False), (((2, "t"), (32, "g")), True), ((), False)])
def test_a_request_is_picked_for_a_group_among_its_resources(resources: Any, is_picked: bool) -> None:
    connection: Any = None
    call = Call(32, 4, 1, None, request(*resources), connection)
    task: Task[bool] = Task(names_group_resource(SERVICES)(call), lambda _: None)
    task.start()
    assert task.value is is_picked


def test_only_groups_have_owners() -> None:
    """A topic's settings may be next to those of a group, and have no owner here."""
    splits, requested = by_group_resource("results"), request((2, "t"), (32, "g"), (32, "h"))
    assert splits.groups(requested) == ["g", "h"]
    assert [splits.requested(entry) for entry in requested.resources] == [(2, "t"), (32, "g"), (32, "h")]
