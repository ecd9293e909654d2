"""Requests about several groups, taken apart and put together."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import decoded
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.apis import k42_delete_groups
from kafka_share_proxy.sharegroups.apis.group_resources import by_group_resource
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry


def call(key: int, version: int, message: object) -> Call:
    return Call(key=key, version=version, correlation_id=1, client_id=None, message=message, connection=None)  # type: ignore[arg-type]


def test_what_is_no_group_is_listed_but_no_group() -> None:
    """A topic's settings may be next to those of a group."""
    message = registry.message("DescribeConfigsRequest")
    resources = [
        message.DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in ((2, "t"), (32, "g"))
    ]
    splits, request = by_group_resource("results"), message(resources=resources)
    assert (splits.groups(request), len(splits.entries(request))) == (["g"], 2)
    part = splits.about(call(32, 4, request), resources[1:]).message
    assert ([each.resource_name for each in part.resources], len(request.resources)) == (["g"], 2)


def test_responses_have_the_order_of_the_request() -> None:
    """Regardless of their owner; unrequested entries are last."""
    requested = registry.message("DeleteGroupsRequest")(groups_names=["a", "b", "c"])
    message = registry.message("DeleteGroupsResponse")
    parts = [
        frames.response(
            42, 2, 1, message(results=[message.DeletableGroupResult(group_id=name, error_code=0) for name in names])
        )
        for names in (["c", "x"], ["b", "a"])
    ]
    one = call(42, 2, requested)
    joined: list[Any] = []

    async def join() -> None:
        splits = k42_delete_groups.API.splits
        assert splits is not None
        joined.append(await splits.joined(one, [await decoded(one, part) for part in parts]))

    Task(join(), lambda _: None).start()
    assert [each.group_id for each in joined[0].results] == ["a", "b", "c", "x"]
