"""Servers as people write them."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.bootstrap import BadServer, servers


def test_servers_are_listed_each_once_in_their_order() -> None:
    addresses = servers(["b:9093, a", "[::1]:9094,b:9093", "::1", ""])
    assert list(addresses) == [("b", 9093), ("a", 9092), ("::1", 9094), ("::1", 9092)]
    assert servers([" , "]) == ()


@pytest.mark.parametrize("text", ["a:0", "a:65536", "a:x", "a:", ":9092", "kafka://a:9092"])
def test_an_invalid_server_is_quoted_in_the_error(text: str) -> None:
    with pytest.raises(BadServer, match=repr(text)):
        servers(["a:1", text])
