"""franz-go through the proxy: tests/clients/franzgo."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.programs import built_with_go, output_of

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture
def program() -> Path:
    return built_with_go("franzgo")


def test_franz_go(front: Front, program: Path, fresh: Callable[[str], str]) -> None:
    """Produce, consume, rebalance, transactions and admin do what they do without the proxy."""
    prefix = fresh("run")
    output = json.loads(output_of([str(program), front.bootstrap, prefix]))
    assert output == {
        "produced": 40,
        "consumed": 40,
        "assigned": [2, 2],
        "committed": ["true"],
        "listed": [f"{prefix}-group"],
        "brokers": f"1@127.0.0.1:{front.first_port + 1}",
    }


def test_franz_go_renews(proxy_39_quick: Front, program: Path, fresh: Callable[[str], str]) -> None:
    """A share consumer keeps a record for five times its lock by renewing it; another record is delivered again."""
    output = json.loads(output_of([str(program), proxy_39_quick.bootstrap, fresh("run"), "share"]))
    assert output["redelivered"] == ["1 delivery 2"]
    assert output["renewals"] >= 5
