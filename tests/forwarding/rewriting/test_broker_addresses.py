"""Addresses of the brokers for clients."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding.rewriting.broker_addresses import BrokerAddresses
from kafka_share_proxy.wire.values import Address


@pytest.mark.parametrize(("node_id", "port"), [(0, 19093), (3, 19096), (65535 - 19093, 65535)])
def test_by_port_each_broker_has_the_next_one(node_id: int, port: int) -> None:
    assert BrokerAddresses("proxy.example", 19093).of(node_id) == Address("proxy.example", port)


@pytest.mark.parametrize("node_id", [-1, 65536 - 19093, 2**31 - 1])
def test_by_port_a_broker_beyond_the_last_port_has_no_address(node_id: int) -> None:
    assert BrokerAddresses("proxy.example", 19093).of(node_id) is None


@pytest.mark.parametrize("node_id", [0, 3, 2**31 - 1])
def test_by_name_every_broker_has_the_same_port(node_id: int) -> None:
    addresses = BrokerAddresses("broker-{id}.kafka.example", 443, is_one_port=True)
    assert addresses.of(node_id) == Address(f"broker-{node_id}.kafka.example", 443)
    assert addresses.of(-1) is None
