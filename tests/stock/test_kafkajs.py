"""KafkaJS through the proxy: tests/clients/kafkajs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.programs import built, need, output_of

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


def test_kafkajs(front: Front, fresh: Callable[[str], str]) -> None:
    """Produce, consume, rebalance, transactions and admin do what they do without the proxy."""
    node, npm = need("node"), need("npm")
    install = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    folder = built("kafkajs", install, "node_modules")
    prefix = fresh("run")
    output = json.loads(output_of([node, str(folder / "main.js"), front.bootstrap, prefix]))
    assert output == {
        "produced": 40,
        "consumed": 40,
        "assigned": {"first": 2, "second": 2},
        "committed": ["commit"],
        "offset": "7",
        "listed": [f"{prefix}-committed", f"{prefix}-group", f"{prefix}-offsets"],
        "state": "Empty",
        "brokers": [{"nodeId": 1, "host": "127.0.0.1", "port": front.first_port + 1}],
    }
