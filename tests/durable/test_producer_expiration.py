"""Share state is written more often than brokers expire its writers, whatever their settings are."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.durable.producer_expiration import PRODUCER, RESPONSE_S, TRANSACTIONAL, Periods, periods
from kafka_share_proxy.durable.state_producer import IDENTITY_S, KEEP_ALIVE_S
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost


class Own:
    """Requests of the proxy itself."""

    def __init__(self) -> None:
        self.response: Promise[Any] = Promise()
        self.requested: list[tuple[int, int, Any]] = []

    def send_request(self, node_id: int, key: int, request: Any) -> Promise[Any]:
        self.requested.append((node_id, key, request))
        return self.response


def responded(code: int = 0, **values: str | None) -> Any:
    message = registry.message("DescribeConfigsResponse")
    names = {"producer": PRODUCER, "transactional": TRANSACTIONAL}
    configs = [message.DescribeConfigsResourceResult(name=names[key], value=value) for key, value in values.items()]
    return message(results=[message.DescribeConfigsResult(error_code=code, configs=configs)])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (responded(producer="86400000", transactional="604800000"), Periods(21_600.0, IDENTITY_S)),
        (responded(producer="60000", transactional="120000"), Periods(15.0, 30.0)),
        (responded(producer="60000"), Periods(15.0, IDENTITY_S)),
        (responded(producer=None, transactional="x"), Periods()),
        (responded(producer="0"), Periods()),
        (responded(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer="60000"), Periods()),
    ],
)
async def test_periods_are_a_quarter_of_the_expiration_times_of_the_broker(response: Any, expected: Periods) -> None:
    own = Own()
    own.response.set(response)
    assert await periods(own, 3, lambda *_: None) == expected
    (requested,) = own.requested
    assert requested[:2] == (3, 32)
    assert requested[2].resources[0].resource_name == "3"


async def test_without_information_the_defaults_apply(autojump_clock: Any) -> None:
    reported: list[str] = []
    notes = lambda event, **_context: reported.append(event)  # noqa: E731
    own = Own()
    own.response.fail(UpstreamLost("gone"))
    assert await periods(own, 3, notes) == Periods(KEEP_ALIVE_S, IDENTITY_S)
    assert await periods(Own(), 3, notes) == Periods()
    assert reported == ["state-expiration-not-known"] * 2
    assert RESPONSE_S < 10
