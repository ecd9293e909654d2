"""Discovery of what a peer offers, against scripted peers."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.capabilities import Capabilities, discover
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.wire.definitions import registry

from tests.support.scripted_peer import response, scripted_peer, versions


def a_peer(api: str, _version: int, message: Any) -> Any:
    """A broker that has share groups switched off and refuses to create topics."""
    if api == "ApiVersions":
        apis = ("ApiVersions", "CreateTopics", "Metadata", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch")
        api_versions = versions(**dict.fromkeys((*apis, "ShareAcknowledge", "DeleteTopics"), (0, 7)))
        api_versions.supported_features = [
            api_versions.SupportedFeatureKey(name="metadata.version", min_version=7, max_version=29)
        ]
        api_versions.finalized_features = [api_versions.FinalizedFeatureKey(name="share.version", max_version_level=0)]
        return api_versions
    if api == "ShareGroupDescribe":
        return response(api, groups=[registry.message(f"{api}Response").DescribedGroup(error_code=35)])
    if api == "CreateTopics":
        return response(api, topics=[registry.message(f"{api}Response").CreatableTopicResult(error_code=29)])
    return response(api)


async def test_a_peer_is_described_by_what_it_offers() -> None:
    async with scripted_peer(a_peer) as address:
        _, capabilities = await discover(Dialling([address]))
    assert capabilities.release == "4.2"
    assert capabilities.features == {"share.version": 0}
    assert capabilities.missing["share"] == "share groups are switched off (share.version 0)"
    assert capabilities.missing["consumer-groups"] == "ConsumerGroupHeartbeat is not offered"
    assert "TOPIC_AUTHORIZATION_FAILED" in capabilities.missing["views"]
    assert "short-locks" in capabilities.missing
    assert capabilities.missing["several-nodes"] == "Metadata shows fewer than two brokers"


def test_the_first_missing_need_is_the_reason() -> None:
    capabilities = Capabilities("4.3", {1: (4, 17)}, {}, {"share": "off"})
    assert capabilities.lacks(("Fetch:12",)) is None
    assert capabilities.lacks(("Fetch:18", "share")) == "Fetch is offered in versions 4 to 17"
    assert capabilities.lacks(("share",)) == "off"
    assert capabilities.lacks(("Produce:3",)) == "Produce is not offered"


def test_the_differences_of_the_proxy_hold_on_any_release() -> None:
    proxy = Capabilities("proxy on 4.3", {}, {})
    assert proxy.difference({"proxy": "on purpose", "4.3": "a fault of brokers"}) == "on purpose"
    assert proxy.difference({"4.3": "a fault of brokers"}) is None
    assert Capabilities("4.3", {}, {}).difference({"proxy": "on purpose"}) is None
    assert Capabilities("4.3", {}, {}).difference({"4.3": "a fault of brokers"}) == "a fault of brokers"
