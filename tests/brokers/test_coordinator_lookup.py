"""Lookup of a group's coordinator, which waits while the brokers create the offsets topic."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.brokers.coordinator_lookup import TRIES, CoordinatorRefused, coordinator_of
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address
from trio.testing import MockClock


class Client:
    """Client that gets these codes; the last one is repeated."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes, self.asked = list(codes), 0

    async def send_request(self, key: int, request: Any) -> tuple[Any, None]:
        assert (key, request.coordinator_keys) == (10, ["g"])
        code = self.codes[min(self.asked, len(self.codes) - 1)]
        self.asked += 1
        response = registry.message("FindCoordinatorResponse")
        entry = response.Coordinator(key="g", node_id=2, host="inner", port=9092, error_code=code)
        return response(coordinators=[entry]), None

    def address_of(self, node_id: int, advertised: Address) -> Address:
        return Address(f"outer-{node_id}", advertised.port)


async def test_coordinator_is_waited_for(autojump_clock: MockClock) -> None:
    client: Any = Client(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)
    assert await coordinator_of(client, "g") == Address("outer-2", 9092)
    assert client.asked == 3


@pytest.mark.parametrize(
    ("code", "asked"), [(ErrorCode.GROUP_AUTHORIZATION_FAILED, 1), (ErrorCode.COORDINATOR_NOT_AVAILABLE, TRIES)]
)
async def test_refusal_says_why(autojump_clock: MockClock, code: ErrorCode, asked: int) -> None:
    client: Any = Client(code)
    with pytest.raises(CoordinatorRefused, match=code.name):
        await coordinator_of(client, "g")
    assert client.asked == asked
