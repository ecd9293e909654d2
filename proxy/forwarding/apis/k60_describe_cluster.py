"""DescribeCluster (key 60): forwarded, the brokers' addresses rewritten.

Behaviour
- A broker whose listener cannot be bound is left out; an answer without any broker is not given.
- Controllers (EndpointType other than brokers, v1+, KIP-919) have addresses of another kind, which are not served
  here: such an answer becomes UNSUPPORTED_ENDPOINT_TYPE without entries. Brokers themselves refuse the question.
- ControllerId is a node id and stays, unless its broker is left out: then another is named, as brokers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.address_rewriting import ours, unusable
from proxy.forwarding.forwarded_api import ForwardedApi
from proxy.wire import frames, messages
from proxy.wire.api_key import ApiKey
from proxy.wire.endpoints import Endpoint
from proxy.wire.errors import ErrorCode

KEY = ApiKey.DESCRIBE_CLUSTER
BROKERS = 1
"""EndpointType: 1 = brokers, 2 = controllers."""


def repair(answer: messages.DescribeClusterResponse, book: AddressBook) -> None:
    """Our addresses for brokers; no addresses for anything else."""
    if answer.endpoint_type != BROKERS:
        _hide(answer)
        return
    named = {broker.broker_id for broker in answer.brokers or ()}
    answer.brokers = ours(answer.brokers, book, "broker_id")
    if named and not answer.brokers:
        raise unusable("DescribeCluster")
    if answer.controller_id in named - {broker.broker_id for broker in answer.brokers}:
        answer.controller_id = answer.brokers[0].broker_id


def _hide(answer: messages.DescribeClusterResponse) -> None:
    answer.brokers = []
    if answer.error_code == ErrorCode.NONE:
        answer.error_code = int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
        answer.error_message = "Controllers are not served by this proxy."


def names_no_brokers(version: int) -> Callable[[memoryview, Sequence[Endpoint]], bool]:
    """A predicate over response frames of this version: does the answer name something else than brokers?"""

    def names(frame: memoryview, _: Sequence[Endpoint]) -> bool:
        answer: messages.DescribeClusterResponse = frames.decode_response(KEY, version, frame)[1]
        return answer.endpoint_type != BROKERS

    return names


API = ForwardedApi(key=KEY, repair=repair, special=names_no_brokers, answers_repeat=True)
