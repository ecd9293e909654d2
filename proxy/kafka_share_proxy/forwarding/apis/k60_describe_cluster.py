"""DescribeCluster (key 60): forwarded, with the brokers' addresses rewritten.

Behaviour
- Rules: forwarding/README.md 10 and 11.
- Controllers (EndpointType other than brokers, v1+, KIP-919) have addresses of another kind, which are not served
  here: such a response becomes UNSUPPORTED_ENDPOINT_TYPE without entries. Brokers themselves refuse this request.
- ControllerId is a node id and stays, unless its broker is left out: then another is named, as brokers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.rewriting.address_rewriting import reachable, unusable
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.endpoints import Endpoint
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.DESCRIBE_CLUSTER
BROKERS = 1
"""EndpointType: 1 = brokers, 2 = controllers."""


def repair(response: messages.DescribeClusterResponse, book: AddressBook) -> None:
    if response.endpoint_type != BROKERS:
        _hide(response)
        return
    upstream_nodes = {broker.broker_id for broker in response.brokers or ()}
    response.brokers = reachable(response.brokers, book, "broker_id")
    if upstream_nodes and not response.brokers:
        raise unusable("DescribeCluster")
    if response.controller_id in upstream_nodes - {broker.broker_id for broker in response.brokers}:
        response.controller_id = response.brokers[0].broker_id


def _hide(response: messages.DescribeClusterResponse) -> None:
    response.brokers = []
    if response.error_code == ErrorCode.NONE:
        response.error_code = int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
        response.error_message = "Controllers are not served by this proxy."


def names_no_brokers(version: int) -> Callable[[memoryview, Sequence[Endpoint]], bool]:
    def names(frame: memoryview, _: Sequence[Endpoint]) -> bool:
        response: messages.DescribeClusterResponse = frames.decode_response(KEY, version, frame)[1]
        return response.endpoint_type != BROKERS

    return names


API = ForwardedApi(key=KEY, repair=repair, special=names_no_brokers, responses_repeat=True)
