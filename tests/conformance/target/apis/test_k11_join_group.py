"""JoinGroup of classic groups."""

from __future__ import annotations

import trio
import trio.testing
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_a_new_member_joins_again_with_the_id_that_it_gets() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        first = await caller.join("g")
        second = await caller.join("g", first.member_id)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (second.error_code, second.generation_id, second.leader) == (0, 1, first.member_id)


async def test_session_timeouts_protocols_and_ids_are_checked() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        await caller.only_member("g")
        codes = [
            (await caller.join("g", session_timeout_ms=1)).error_code,
            (await caller.join("g", protocols=[{"name": "other", "metadata": b""}])).error_code,
            (await caller.join("g", "unknown")).error_code,
            (await caller.join("", "")).error_code,
        ]
        assert codes == [
            ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.INVALID_GROUP_ID,
        ]  # fmt: skip


async def test_a_join_that_waits_ends_when_the_coordinator_moves() -> None:
    async with running_cluster(2) as cluster, trio.open_nursery() as nursery:
        cluster.move_coordinator(CoordinatorKind.GROUP, "g", 1)
        caller = Caller(cluster)
        await caller.only_member("g")
        codes = []

        async def join() -> None:
            member_id = (await caller.join("g")).member_id
            codes.append((await caller.join("g", member_id)).error_code)

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        cluster.move_coordinator(CoordinatorKind.GROUP, "g", 2)
        await trio.testing.wait_all_tasks_blocked()
        assert codes == [ErrorCode.NOT_COORDINATOR]


async def test_a_member_of_a_view_creates_it() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        subscription = messages.ConsumerProtocolSubscription(topics=["__view.r2.t"])
        metadata = b"\0\1" + bytes(registry.codec_of(messages.ConsumerProtocolSubscription, 1).encode(subscription))
        await Caller(cluster).join("g", protocols=[{"name": "range", "metadata": metadata}])
        assert cluster.topics.with_name("__view.r2.t") is not None
