"""The brokers' limit of commit metadata, as the proxy knows it."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.commits.metadata_limit import CONFIG, DEFAULT, FIRST_AFTER_S, READ_EVERY_S, MetadataLimit
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost

from tests.support.ports import World

CLUSTER_AUTHORIZATION_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Brokers:
    """Brokers 1 and 2, each with its limit. None: it does not respond. An error code: it shows no configuration."""

    def __init__(self, *limits: int | ErrorCode | None) -> None:
        self.limits = dict(enumerate(limits, 1))

    def send_request(self, node_id: int, key: int, request: Any) -> Promise[Any]:
        assert (key, request.resources[0].configuration_keys) == (ApiKey.DESCRIBE_CONFIGS, [CONFIG])
        promise: Promise[Any] = Promise()
        limit = self.limits[node_id]
        if limit is None:
            promise.fail(UpstreamLost("gone"))
            return promise
        response = messages.DescribeConfigsResponse
        code = limit if isinstance(limit, ErrorCode) else ErrorCode.NONE
        entry = response.DescribeConfigsResourceResult(name=CONFIG, value=str(int(limit)), read_only=True)
        result = response.DescribeConfigsResult(
            error_code=code, resource_type=4, resource_name=str(node_id), configs=[entry]
        )
        promise.set(response(results=[result]))
        return promise


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((4096, 100), 100),
        ((8192, 8192), 8192),
        ((None, 200), 200),
        ((None, None), DEFAULT),
        ((CLUSTER_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED), DEFAULT),
        ((0, 4096), 0),
    ],
)
def test_lowest_limit_of_the_brokers_counts(limits: tuple[int | ErrorCode | None, ...], expected: int) -> None:
    world, limit = World(), MetadataLimit()
    brokers: Any = Brokers(*limits)
    world.services.own = brokers
    _know_brokers(world)
    limit.start(world.services)
    assert limit.characters == DEFAULT
    world.timers.advance(FIRST_AFTER_S)
    assert limit.characters == expected


def test_limit_is_read_again() -> None:
    world, limit = World(), MetadataLimit()
    brokers: Any = Brokers(100, 100)
    world.services.own = brokers
    _know_brokers(world)
    limit.start(world.services)
    world.timers.advance(FIRST_AFTER_S)
    brokers.limits = {1: 300, 2: 200}
    world.timers.advance(READ_EVERY_S)
    assert limit.characters == 200


def test_refusal_halves_the_limit_and_a_shorter_one_counts() -> None:
    world, limit = World(), MetadataLimit()
    limit.refused(world.services, 1000)
    assert limit.characters == 500
    limit.refused(world.services, 4000)
    assert limit.characters == 500


def test_without_an_identity_the_default_stays() -> None:
    world, limit = World(), MetadataLimit()
    world.services.own = None
    limit.start(world.services)
    world.timers.advance(2 * READ_EVERY_S)
    assert limit.characters == DEFAULT


def _know_brokers(world: World) -> None:
    response = messages.MetadataResponse
    brokers = [response.MetadataResponseBroker(node_id=node, host="h", port=9000 + node, rack=None) for node in (1, 2)]
    world.services.topology.fold(response(brokers=brokers, cluster_id="c", controller_id=1, topics=[]), 0.0)
