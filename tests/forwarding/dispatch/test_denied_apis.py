"""APIs that the settings deny: which, with which error, and what is left of them in ApiVersions and routes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.forwarding.dispatch import denied_apis, route_table
from kafka_share_proxy.forwarding.dispatch.denied_apis import NEEDED, code_of, keys_of
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer, client_facing, effective
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Routes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RequestRefused

from tests.support import ports

ALL = {key: registry.versions(key) for key in client_facing()}


def routes(denied: frozenset[int]) -> Routes:
    book = AddressBook(1, "localhost", lambda _node_id, _upstream: True)
    served = share_group_apis.served(ports.World().services)
    offer = Offer((share_group_apis.OFFER,), denied=denied)
    return route_table.build(book, EffectiveVersions(offer), Limits(), served)


def test_denied_apis_are_not_offered_even_if_they_are_served_here() -> None:
    denied = keys_of(["CreateTopics", "ShareFetch"], read_only=False)
    offered = effective(ALL, Offer((share_group_apis.OFFER,), denied=denied))
    assert {ApiKey.CREATE_TOPICS, ApiKey.SHARE_FETCH}.isdisjoint(offered)
    assert {ApiKey.DELETE_TOPICS, ApiKey.SHARE_ACKNOWLEDGE} <= set(offered)


def test_a_denied_produce_is_still_offered() -> None:
    assert ApiKey.PRODUCE in effective(ALL, Offer(denied=keys_of([], read_only=True)))


def test_every_version_of_a_denied_api_is_refused_here_and_all_others_stay_as_they_were() -> None:
    denied = keys_of(["CreateTopics", "ShareFetch", "Fetch"], read_only=False)
    before, after = routes(frozenset()), routes(denied)
    for name, route in after.items():
        if route.key in denied:
            assert (route.kind in (Kind.LOCAL, Kind.REFUSE), route.rewrite) == (True, None)
        else:
            assert (route.kind, route.reason) == (before[name].kind, before[name].reason)
    assert after.fallback(ApiKey.FETCH, 0).kind is Kind.REFUSE, "old versions of Fetch, too"


def test_read_only_allows_consuming_and_describing() -> None:
    denied = {registry.API_KEYS[key] for key in keys_of([], read_only=True)}
    changing = ("Create", "Delete", "Alter", "Incremental", "Add", "Update", "Remove", "Write", "Elect", "Expire")
    names = {registry.API_KEYS[key] for key in client_facing()}
    assert {name for name in names if name.startswith(changing)} <= denied
    assert {"Produce", "InitProducerId", "EndTxn", "TxnOffsetCommit", "OffsetDelete", "UnregisterBroker"} <= denied
    assert denied.isdisjoint({"Fetch", "OffsetCommit", "JoinGroup", "ShareAcknowledge", "ConsumerGroupHeartbeat"})
    assert not any(name.startswith(("Describe", "List")) for name in denied)


@pytest.mark.parametrize(
    ("name", "text"),
    [("CreateTopic", "did you mean CreateTopics"), ("Vote", "there is no API Vote"), ("Metadata", "no client works")],
)
def test_a_name_that_cannot_be_denied_is_a_mistake(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        keys_of([name], read_only=False)


def test_no_setting_denies_what_every_client_needs() -> None:
    assert keys_of([], read_only=True).isdisjoint(NEEDED)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ApiKey.CREATE_TOPICS, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ApiKey.SHARE_FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ApiKey.END_TXN, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (ApiKey.CREATE_ACLS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ApiKey.LIST_TRANSACTIONS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_the_error_is_the_one_for_a_missing_right(key: ApiKey, code: ErrorCode) -> None:
    assert code_of(key) is code


def call(key: int, message: Any) -> Any:
    return SimpleNamespace(key=key, version=3, message=message)


async def test_a_produce_without_a_response_ends_the_connection() -> None:
    route = denied_apis.denied_route(ApiKey.PRODUCE, 3)
    assert route.handler is not None
    with pytest.raises(RequestRefused, match="deny Produce"):
        await route.handler(call(ApiKey.PRODUCE, messages.ProduceRequest(acks=0, topic_data=[])))
    response = await route.handler(call(ApiKey.PRODUCE, messages.ProduceRequest(acks=1, topic_data=[])))
    assert isinstance(response, messages.ProduceResponse)
