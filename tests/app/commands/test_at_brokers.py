"""Access of commands to the brokers: their errors, and the end of their connections."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.app.commands import at_brokers
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import Address


def test_the_first_of_several_errors_is_raised() -> None:
    """Commands run several tasks; an error of one ends all."""

    async def fails() -> None:
        raise UpstreamLost("a:1 closed the connection")

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)

    with pytest.raises(UpstreamLost, match="a:1 closed the connection"):
        at_brokers.run(work)


def test_nodes_of_the_settings_replace_advertised_addresses() -> None:
    config = Config.model_validate({"upstream": {"bootstrap": ["a:1"], "nodes": {7: "outer:9092"}}})
    client = at_brokers.cluster_client(config)
    assert client.address_of(7, Address("inner", 9092)) == Address("outer", 9092)
    assert client.address_of(8, Address("inner", 9092)) == Address("inner", 9092)
