"""Requests over a connection: versions, logins, faults and the judge."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.conformance.target.faults import Fault
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.blocking_connection import build
from tests.support.target_client import METADATA, VERSIONS, TargetClient, connected, served


def rules_of(server: Any) -> list[str]:
    return [finding.rule.id for finding in server.findings()]


async def test_all_nodes_are_in_the_metadata() -> None:
    async with served(nodes=3) as server:
        client = await connected(server, 2)
        await client.call(VERSIONS)
        response = await client.call(METADATA)
        nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        assert nodes == server.cluster.addresses
        assert rules_of(server) == []


async def test_an_unknown_version_of_api_versions_gets_version_0() -> None:
    """KIP-511."""
    async with served() as server:
        client = await connected(server)
        await client.stream.send_all(b"\0\0\0\x0e\0\x12\0\x63\0\0\0\x07\0\4test")
        correlation_id, response = frames.decode_response(18, 0, await client.frame())
        assert (correlation_id, response.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
        await client.call(VERSIONS)
        assert rules_of(server) == []


async def test_an_api_that_is_not_served_is_refused() -> None:
    async with served() as server:
        client = await connected(server)
        await client.call(VERSIONS)
        response = await client.call(messages.DescribeUserScramCredentialsRequest(users=None))
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        await client.send(messages.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1), 99 % 4)
        assert rules_of(server) == ["api-not-offered"]


async def test_a_later_version_of_a_served_api_ends_the_connection() -> None:
    async with served() as server:
        client = await connected(server)
        await client.stream.send_all(b"\0\0\0\x0e\0\1\0\x12\0\0\0\7\0\4test")
        assert await client.stream.receive_some(1) == b""


async def test_a_refused_produce_without_acks_ends_the_connection() -> None:
    async with served() as server:
        client = await connected(server)
        await client.send(build("ProduceRequest", acks=0, topic_data=[{"name": "none", "partition_data": [{}]}]), 9)
        assert await client.stream.receive_some(1) == b""


async def test_bytes_that_are_no_request_end_the_connection() -> None:
    async with served() as server:
        for data in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff\xff\xff\xff",
            b"\0\0\0\1\0",
            b"\0\0\0\x0a\0\3\0\4\0\0\0\1\0\x63",
        ):
            client = await connected(server)
            await client.stream.send_all(data)
            assert await client.rest() == b""
        assert rules_of(server) == ["request-undecodable"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_login_is_required_where_there_are_users(mechanism: str) -> None:
    async with served(users={"alice": "secret"}) as server:
        client = await connected(server)
        await client.call(VERSIONS)
        await log_in(client, mechanism, "secret")
        assert len((await client.call(METADATA)).brokers) == 3
        assert rules_of(server) == []
        without = await connected(server)
        await without.call(VERSIONS)
        await without.send(METADATA)
        assert await without.rest() == b""
        assert rules_of(server) == ["request-before-login"]


async def test_a_refused_login_gets_its_response_and_ends_the_connection() -> None:
    async with served(users={"alice": "secret"}) as server:
        client = await connected(server)
        await client.call(messages.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = await client.call(messages.SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"))
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.rest() == b""


async def test_tokens_follow_without_header_after_handshake_v0() -> None:
    """KIP-43."""
    async with served(users={"alice": "secret"}) as server:
        client = await connected(server)
        await client.call(messages.SaslHandshakeRequest(mechanism="PLAIN"), 0)
        await client.stream.send_all(b"\0\0\0\x0d\0alice\0secret")
        assert await client.frame() == b""
        assert len((await client.call(METADATA)).brokers) == 3


async def log_in(client: TargetClient, mechanism: str, password: str) -> None:
    from kafka_share_proxy.wire import sasl

    steps = sasl.authentication(mechanism, "alice", lambda: password)
    _, version, request = next(steps)
    try:
        for _ in range(10):
            _, version, request = steps.send(await client.call(request, version))
    except StopIteration:
        return


async def test_a_fault_replaces_one_response() -> None:
    async with served() as server:
        server.faults.add(Fault(api=ApiKey.FIND_COORDINATOR, nth=2, error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        client = await connected(server)
        find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        codes = [(await client.call(find)).coordinators[0].error_code for _ in range(3)]
        assert codes == [0, ErrorCode.COORDINATOR_NOT_AVAILABLE, 0]


async def test_a_delayed_response_waits_for_the_clock_of_the_cluster() -> None:
    async with served() as server:
        server.clock.stop()
        server.faults.add(Fault(api=ApiKey.METADATA, delay_ms=60_000))
        client = await connected(server)
        await client.send(METADATA)
        with trio.move_on_after(0.05) as early:
            await client.frame()
        assert early.cancelled_caught
        server.clock.advance(60)
        assert await client.frame()


async def test_a_lost_response_leaves_the_connection_open() -> None:
    async with served() as server:
        server.faults.add(Fault(api=ApiKey.METADATA, lose=True))
        client = await connected(server)
        await client.send(METADATA)
        key, version, number = await client.send(METADATA)
        assert frames.decode_response(key, version, await client.frame())[0] == number


async def test_half_a_frame_ends_the_connection() -> None:
    async with served() as server:
        client = await connected(server)
        await client.send(METADATA)
        size = len(await client.frame()) + 4
        server.faults.add(Fault(api=ApiKey.METADATA, half_frame=True))
        await client.send(METADATA)
        assert len(await client.rest()) == size // 2


async def test_a_strict_cluster_ends_the_connection_at_a_finding() -> None:
    async with served(strict=True) as server:
        client = await connected(server)
        await client.call(VERSIONS)
        await client.send(messages.HeartbeatRequest(group_id="", generation_id=1, member_id="m"))
        assert await client.rest() == b""
        assert rules_of(server) == ["group-id-empty"]


async def test_advice_does_not_end_a_connection_of_a_strict_cluster() -> None:
    async with served(strict=True) as server:
        client = await connected(server)
        assert (await client.call(METADATA)).brokers
        assert rules_of(server) == ["api-versions-missing"]
