"""Selection of requests: by groups in one list, and left to other features for all other groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits import commit_apis
from kafka_share_proxy.forwarding.dispatch.declared_api import Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import CommitWorld

APIS = (*commit_apis.COMMITS, *commit_apis.DELETIONS)


@pytest.mark.parametrize("api", APIS, ids=lambda api: registry.API_KEYS[api.key])
def test_every_api_declares_its_response_while_its_state_is_unavailable(api) -> None:
    assert api.needs is Needs.OWNER
    lowest, highest = registry.versions(api.key)
    for version in range(lowest, highest + 1):
        request = registry.message(f"{registry.API_KEYS[api.key]}Request")()
        call = Call(api.key, version, 1, "c", request, CommitWorld().connect())
        assert api.respond_unavailable is not None
        response = on_its_own(api.respond_unavailable(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, "text")).result()
        assert isinstance(response, Message)
        registry.response(api.key, version).encode(response)


def test_owner_serves_every_api() -> None:
    assert commit_apis.of_owner(CommitWorld().services).keys() == {api.key for api in APIS}


def test_deletions_are_handled_before_share_groups_and_commits_after_them() -> None:
    services = CommitWorld().services
    assert list(commit_apis.commits(services)) == [8, 9, 28]
    assert list(commit_apis.deletions(services)) == [42, 47]
