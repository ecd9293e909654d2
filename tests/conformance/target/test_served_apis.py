"""The APIs that the cluster serves."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.interfaces import ClientPeer, TargetCall
from kafka_share_proxy.conformance.target.served_apis import APIS, offer
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions import registry

from tests.support.target_caller import running_cluster


async def test_every_offered_version_of_a_request_with_defaults_has_a_response() -> None:
    """Responses are encoded, since a field that a version lacks is an error of ours."""
    async with running_cluster(2) as cluster:
        for node_id in cluster.node_ids:
            for api in APIS:
                for version in range(api.versions[0], api.versions[1] + 1):
                    request = registry.message(f"{registry.API_KEYS[api.key]}Request")()
                    if api.key in (15, 69, 77):
                        (request.groups if api.key == 15 else request.group_ids).append("g")
                    call = TargetCall(
                        cluster, ClientPeer(1, node_id, "h"), RequestHeader(api.key, version, 1, None), request
                    )
                    response = await api.handle(call)
                    assert response is None or registry.response(api.key, version).encode(response)


def test_each_api_is_served_once_and_within_its_definition() -> None:
    assert len({api.key for api in APIS}) == len(APIS)
    for api in APIS:
        first, last = registry.versions(api.key)
        assert first <= api.versions[0] <= api.versions[1] <= last


async def test_the_server_adds_its_own_apis() -> None:
    async with running_cluster() as cluster:
        offer(cluster, {17: (0, 1)})
        assert (cluster.offered[17], cluster.offered[18], len(cluster.offered)) == ((0, 1), (0, 4), len(APIS) + 1)
