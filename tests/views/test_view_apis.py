"""Declarations of the APIs that views change."""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.offered_versions import client_facing
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.views.view_apis import APIS

from tests.support.view_broker import World


def test_an_api_is_declared_once() -> None:
    """And is one that clients may use."""
    keys = [api.key for api in APIS]
    assert len(set(keys)) == len(keys)
    assert set(keys) <= client_facing()


def test_a_request_that_names_no_view_is_forwarded() -> None:
    """No API is always served: each is matched in the bytes first."""
    served = view_apis.served(World().views)
    assert served.keys() == {api.key for api in APIS}
    assert all(entry.wants is not None for entry in served.values())


def test_views_keep_no_versions_of_their_own() -> None:
    """They stand in front of what brokers have."""
    assert [api.key for api in APIS if api.versions is not None or api.raised_to is not None] == []
