"""Members of classic groups by hand: join, synchronise, heartbeat, leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import trio

from kafka_share_proxy.conformance.suite.building import KEYS, build
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.connection import PeerConnection
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.wire.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 10_000
JOIN_VERSION = 5
"""Version of JoinGroup: member ids are required first (4), static members exist (5)."""


@dataclass
class ClassicGroupClient:
    """One member of a classic group, on a separate connection: a JoinGroup blocks it."""

    run: CaseRun
    group: str
    connection: PeerConnection
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1

    async def try_join(self, protocols: Sequence[tuple[str, bytes]] = (("range", b"m"),), **fields: Any) -> Any:
        """Send one JoinGroup and keep the member id and generation that an accepted one returns."""
        listed = [{"name": name, "metadata": metadata} for name, metadata in protocols]
        values: dict[str, Any] = {"group_id": self.group, "member_id": self.member_id, "protocol_type": "consumer"}
        values |= {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS, "protocols": listed}
        message = build("JoinGroup", **(values | {"group_instance_id": self.instance_id} | fields))
        response = await self.connection.send_message(KEYS["JoinGroup"], JOIN_VERSION, message, REBALANCE_MS / 1000)
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
        if response.error_code == ErrorCode.NONE:
            self.generation = response.generation_id
        return response

    async def join(self, protocols: Sequence[tuple[str, bytes]] = (("range", b"m"),)) -> Any:
        """Join, with a second request if a member id is required first. Raises Mismatch."""
        self.run.at_end(self._leave)
        response = await self.try_join(protocols)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            response = await self.try_join(protocols)
        equal("error of JoinGroup", response.error_code, ErrorCode.NONE)
        return response

    async def sync(self, assignments: Sequence[tuple[str, bytes]] = (), **fields: Any) -> Any:
        """Send a SyncGroup; the leader gives the assignments."""
        listed = [{"member_id": member_id, "assignment": data} for member_id, data in assignments]
        values: dict[str, Any] = self._ids | {"assignments": listed} | fields
        message = build("SyncGroup", **values)
        version = 5 if {"protocol_type", "protocol_name"} & set(fields) else 3
        return await self.connection.send_message(KEYS["SyncGroup"], version, message, REBALANCE_MS / 1000)

    async def heartbeat(self, **fields: Any) -> int:
        """Send a Heartbeat; return the error code."""
        response = await self.run.request("Heartbeat", self.connection, **(self._ids | fields))
        return int(response.error_code)

    async def leave(self, **fields: Any) -> Any:
        """Send a LeaveGroup of this member."""
        member = {"member_id": self.member_id, "group_instance_id": self.instance_id} | fields
        return await self.run.request("LeaveGroup", self.connection, group_id=self.group, members=[member])

    async def _leave(self) -> None:
        await self.leave()

    @property
    def _ids(self) -> dict[str, Any]:
        ids = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return ids | {"group_instance_id": self.instance_id}


async def classic_member(run: CaseRun, group: str | None = None, instance_id: str | None = None) -> ClassicGroupClient:
    """Return a member that has not joined, on a new connection to the coordinator."""
    name = group or run.group()
    address = await run.cluster.coordinator(await run.connection(), name)
    return ClassicGroupClient(run, name, await run.connect(address), instance_id=instance_id)


async def stable_member(run: CaseRun, instance_id: str | None = None) -> ClassicGroupClient:
    """Return the only member of a group, with an assignment."""
    member = await classic_member(run, instance_id=instance_id)
    await member.join()
    response = await member.sync([(member.member_id, b"all")])
    equal("error of SyncGroup", response.error_code, ErrorCode.NONE)
    return member


async def second_member(run: CaseRun, first: ClassicGroupClient) -> ClassicGroupClient:
    """Let a second member join, and the first again; return the second. Both have joined, none has an assignment."""
    second = await classic_member(run, first.group)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.join)
        await run.until(lambda: _is_rebalancing(first), "a rebalance")
        equal("error of the first member's join", (await first.try_join()).error_code, ErrorCode.NONE)
    return second


async def _is_rebalancing(member: ClassicGroupClient) -> bool:
    return await member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
