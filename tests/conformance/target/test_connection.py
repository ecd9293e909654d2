"""Connections: order, pipelines, and their end."""

from __future__ import annotations

import trio
from kafka_share_proxy.conformance.target import connection
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.wire.codec import headers
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.support.conditions import until
from tests.support.target_client import METADATA, VERSIONS, connected, served


async def test_pipelined_requests_are_served_in_order() -> None:
    async with served() as server:
        server.clock.stop()
        server.faults.add(Fault(api=ApiKey.METADATA, delay_ms=1000))
        client = await connected(server)
        sent = [(await client.send(request))[2] for request in (VERSIONS, METADATA, VERSIONS, METADATA)]
        assert headers.correlation_id(await client.frame()) == sent[0]
        server.clock.advance(1)
        assert [headers.correlation_id(await client.frame()) for _ in sent[1:]] == sent[1:]


async def test_a_client_that_sends_faster_than_it_is_served_is_served_completely() -> None:
    async with served() as server:
        client = await connected(server)
        count = connection.PIPELINED_MAX * 4
        for _ in range(count):
            await client.send(METADATA)
        numbers = [headers.correlation_id(await client.frame()) for _ in range(count)]
        assert numbers == list(range(1, count + 1))


async def test_a_client_that_leaves_while_its_request_waits_is_noticed() -> None:
    async with served() as server:
        server.clock.stop()
        server.faults.add(Fault(api=ApiKey.METADATA, delay_ms=1000))
        client = await connected(server)
        await client.send(METADATA)
        await until(lambda: server.connections == 1)
        await client.stream.aclose()
        await until(lambda: server.connections == 0)


async def test_a_node_that_goes_down_ends_its_connections_only() -> None:
    async with served() as server:
        first, second = await connected(server, 1), await connected(server, 2)
        await first.call(VERSIONS)
        await second.call(VERSIONS)
        await server.take_node_down(1)
        assert await first.rest() == b""
        brokers = (await second.call(METADATA)).brokers
        assert 1 not in {broker.node_id for broker in brokers}


async def test_an_error_of_a_handler_ends_its_connection_and_is_kept() -> None:
    async with served(fails=True) as server:

        async def fail(*_: object) -> None:
            raise ZeroDivisionError

        server.before_request(fail)
        client = await connected(server)
        await client.send(messages.MetadataRequest(topics=[]))
        assert await client.rest() == b""
        assert [type(error) for error in server.failures] == [ZeroDivisionError]
        with trio.fail_after(5):
            await connected(server)
