"""DescribeCluster: more cases in tests/tables/describe_cluster.yaml."""

import pytest
from kafka_share_proxy.forwarding.apis import k60_describe_cluster
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.tables.golden import recorded, replaced, rewritten

RESPONSE = registry.message("DescribeClusterResponse")


@pytest.mark.parametrize(("release", "version", "frame"), recorded("DescribeCluster"))
def test_in_a_real_response_only_the_address_changes(release, version, frame):
    assert rewritten(60, version, frame) == replaced(60, version, frame)


def test_an_unknown_kind_of_endpoint_is_hidden_like_controllers():
    broker = RESPONSE.DescribeClusterBroker(broker_id=1, host="unknown.internal", port=1)
    response = RESPONSE(endpoint_type=3, cluster_id="c", brokers=[broker])
    k60_describe_cluster.repair(response, AddressBook(20000, "h", lambda *_: True))
    assert (response.error_code, response.brokers) == (ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, [])
