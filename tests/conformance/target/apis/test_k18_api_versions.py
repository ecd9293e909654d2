"""Offered versions and features."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.apis import k18_api_versions
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_what_is_offered_is_returned_with_the_finalized_features() -> None:
    async with running_cluster() as cluster:
        cluster.offered[0] = (3, 9)
        response = await Caller(cluster).query("ApiVersions", client_software_name="c", client_software_version="1")
        assert (response.api_keys[0].api_key, response.api_keys[0].max_version) == (0, 9)
        finalized = {each.name: each.max_version_level for each in response.finalized_features}
        assert finalized == {"group.version": 1, "share.version": 1, "transaction.version": 2}


async def test_an_invalid_name_of_the_client_is_refused() -> None:
    async with running_cluster() as cluster:
        response = await Caller(cluster).query("ApiVersions", client_software_name="-", client_software_version="1")
        assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_a_request_of_an_unknown_version_learns_the_versions() -> None:
    async with running_cluster() as cluster:
        response = k18_api_versions.offered_versions(cluster, ErrorCode.UNSUPPORTED_VERSION)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (18, 0, 4) in [(each.api_key, each.min_version, each.max_version) for each in response.api_keys]


def test_finalized_levels_are_supported() -> None:
    features = k18_api_versions.FEATURES.values()
    assert all(each.lowest <= each.finalized <= each.highest for each in features)
