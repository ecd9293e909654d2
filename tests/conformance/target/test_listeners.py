"""Ports of the nodes."""

from __future__ import annotations

import ssl

import pytest
import trio
import trustme

from tests.support.target_client import METADATA, VERSIONS, connected, served


async def test_a_node_is_opened_again_on_the_same_port() -> None:
    async with served(nodes=2) as server:
        before = dict(server.cluster.addresses)
        await server.refuse_connections(2)
        with pytest.raises(OSError, match="all attempts to connect"):
            await connected(server, 2)
        await server.accept_connections(2)
        client = await connected(server, 2)
        assert len((await client.call(METADATA)).brokers) == 2
        assert server.cluster.addresses == before


async def test_open_connections_outlive_refused_ones() -> None:
    async with served(nodes=2) as server:
        client = await connected(server, 2)
        await client.call(VERSIONS)
        await server.refuse_connections(2)
        assert len((await client.call(METADATA)).brokers) == 2


async def test_a_port_in_use_is_an_error() -> None:
    async with served(nodes=1) as server:
        _, port = server.cluster.addresses[1]
        with pytest.RaisesGroup(OSError, flatten_subgroups=True, allow_unwrapped=True):
            async with served(nodes=1, port=port):
                pass


async def test_clients_connect_with_tls() -> None:
    authority = trustme.CA()
    inside, outside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("localhost").configure_cert(inside)
    authority.configure_trust(outside)
    async with served(nodes=1, tls=inside) as server:
        client = await connected(server, tls=outside)
        assert len((await client.call(METADATA)).brokers) == 1
        plain = await connected(server)
        await plain.send(METADATA)
        with trio.fail_after(10):
            assert not (await plain.rest()).startswith(b"\0\0")
