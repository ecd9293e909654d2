"""Membership in the group of proxies, which assigns the owners of state partitions (durable/README.md rules 20-25).

JoinGroup and SyncGroup have a separate connection, because a JoinGroup waits for the slowest member. A partition that
this proxy must release stays in its list until `stopped` is called. Then it rejoins, which starts a new generation. A
lost coordinator: `brokers.replaced`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from math import inf
from typing import TypeVar

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterConnection
from kafka_share_proxy.brokers.idle_connections import IdleConnections
from kafka_share_proxy.brokers.replaced import ResponseDue, unless_replaced
from kafka_share_proxy.durable import ownership_rules
from kafka_share_proxy.durable.heartbeat_pace import HeartbeatPace
from kafka_share_proxy.durable.ownership import OwnershipEvents
from kafka_share_proxy.durable.ownership_rules import (
    FLEET_PROTOCOL,
    GROUP,
    PARTITIONS,
    PROTOCOL,
    PROTOCOL_TYPE,
    Lease,
    OwnerInTable,
    ProxyMember,
)
from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.boot_clock import boot_time
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError, UpstreamLost, error_name
from kafka_share_proxy.wire.values import Address

GROUP_KEY = 0
MARGIN_SHARE = 0.25
"""Safety margin of the lease, as a fraction of the session timeout."""
RETRY_MIN_S, RETRY_SOON_S, RETRY_MAX_S = 0.02, 0.05, 0.2
"""Delays between two attempts to find the coordinator. The shortest follows a change: another coordinator, or one that
is loading. The longest applies after SOON_S.
"""
SOON_S = 30.0
"""Seconds within which brokers find another coordinator."""
LOADING_BEATS = 5
"""Heartbeats that may fail while the coordinator loads, before brokers are queried again."""
DIAL_AGAIN_S = 0.2
"""Delay in seconds before an unreachable coordinator is dialled again."""
NEW_GROUP_S = 10.0
"""Seconds without a coordinator that are not reported: a new cluster creates its offsets topic first."""
LEAVE_S = 2.0
JOINING_S = 5.0
"""Seconds for which a connection is kept for the next JoinGroup: a change of members takes two or three."""

T = TypeVar("T")


class NotReadyYet(UpstreamLost):
    """The coordinator of the group is not available yet."""


class NotAMember(ProxyError):
    """This proxy is no longer a member of the group."""


class Membership:
    """Membership of one proxy in the group. Implements `ownership.Ownership`."""

    def __init__(
        self,
        client: ClusterClient,
        notes: Notes,
        address: str,
        session_s: float,
        clock: Callable[[], float] = boot_time,
        *,
        name: str = "",
        peer: str = "",
        protocol: str = "",
        serves: Sequence[str] = (),
        is_successor: bool = False,
    ) -> None:
        """`peer`: address for other proxies of a fleet; empty if one owns everything. `name`: setting cluster.name.

        `protocol`: name that all members must have; empty: that of a fleet, or of one owner.

        `serves`: services that owners provide, for messages and event names. `is_successor`: see ProxyMember.
        """
        self.lease_s = session_s
        self.trouble = "the group of proxies was not contacted yet"
        """Empty while this proxy is the owner."""
        self.assigned: frozenset[int] = frozenset()
        self.elsewhere: dict[int, str] = {}
        """Addresses of the other owners, by partition."""
        self.peers: frozenset[str] = frozenset()
        """Addresses of the other members."""
        self.generation = -1
        self._events = OwnershipEvents()
        """Events of `run`, without which nothing changes."""
        self._client = client
        self._connections = IdleConnections(client.settings, JOINING_S)
        self._notes = notes
        self._address = address
        self._peer = peer
        self._protocol = protocol or (FLEET_PROTOCOL if peer else PROTOCOL)
        self._serves = tuple(serves)
        self._pace = HeartbeatPace(session_s, in_fleet=bool(peer))
        self._session_s = session_s
        self._clock = clock
        self._lease = Lease(session_s, session_s, session_s * MARGIN_SHARE)
        # The peer address is part of the name: a static member that rejoined with another peer address would keep the
        # table unchanged, and the other members would not learn of it.
        self._instance: str | None = f"proxy-{name or address}" + (f"-{peer}" if peer else "")
        self._member_id = ""
        self._holding: set[int] = set()
        """Partitions that must not be given to another proxy."""
        self._must_rejoin = False
        self._is_retiring = False
        self._is_successor = is_successor
        self._is_only_member: bool | None = None
        """None before the first table."""
        self._delay = RETRY_MIN_S
        self._failing_since = inf
        self._coordinator_address: Address | None = None
        """Coordinator in the brokers' last response."""
        self._dial_at = -inf
        """Earliest trio.current_time() of the next dial."""
        self._dial_error = ""
        self._group_trouble = LastingTrouble(
            notes, "proxy-group-trouble", "proxy-group-answers", patience_s=NEW_GROUP_S
        )

    def is_valid(self) -> bool:
        return bool(self._holding) and self._clock() < self._lease.ends  # no call of `Lease`: every request reads it

    @property
    def is_member(self) -> bool:
        return self.generation >= 0 and self._lease.is_valid(self._clock())

    def stopped(self, partitions: Iterable[int]) -> None:
        before = self._holding - self.assigned
        self._holding.difference_update(partitions)
        if before and not self._holding - self.assigned:
            self._rejoin_soon()

    @property
    def all_elsewhere(self) -> bool:
        return len(self.elsewhere) == PARTITIONS

    @property
    def has_others(self) -> bool:
        return bool(self.peers)

    def retire(self) -> None:
        """Let others own everything. The membership continues."""
        self._is_retiring = True
        self._rejoin_soon()

    def expect_change(self) -> None:
        """Notice a rebalance soon: a member rejoins, or the link to it has ended."""
        self._pace.expect_change()

    def _rejoin_soon(self) -> None:
        self._must_rejoin = True
        self._pace.end_pause()

    async def run(self, events: OwnershipEvents) -> None:
        self._events = events
        try:
            while True:
                try:
                    await self._take_part()
                except NotAMember as error:
                    self._drop(str(error))
                except ProxyError as error:
                    self._report_unreachable(error)
                await self._pause()
        finally:
            await self._leave()
            await self._connections.aclose()
            await self._client.aclose()

    async def _pause(self) -> None:
        now = trio.current_time()
        self._failing_since = min(self._failing_since, now)
        await trio.sleep(self._delay)
        longest = RETRY_SOON_S if now - self._failing_since < SOON_S else RETRY_MAX_S
        self._delay = min(2 * self._delay, longest)

    # One coordinator

    async def _take_part(self) -> None:
        address = await self._coordinator()
        if address != self._coordinator_address:
            self._coordinator_address, self._dial_at, self._delay = address, -inf, RETRY_MIN_S
        if trio.current_time() < self._dial_at:
            raise UpstreamLost(self._dial_error)
        if self.generation < 0:
            await self._unless_moved(partial(self._join, address))
        async with AsyncExitStack() as stack:
            heartbeat_connection = await self._unless_moved(partial(self._dial, address, stack))
            while True:
                due = ResponseDue(trio.current_time())
                await self._unless_moved(partial(self._heartbeat_until_rebalance, heartbeat_connection, due), due)
                await self._rejoin(address, heartbeat_connection)

    async def _dial(self, address: Address, stack: AsyncExitStack) -> ClusterConnection:
        try:
            return await stack.enter_async_context(self._connections.lend(address))
        except UpstreamLost as error:
            self._dial_at, self._dial_error = trio.current_time() + DIAL_AGAIN_S, str(error)
            raise

    async def _unless_moved(self, wait: Callable[[], Awaitable[T]], due: ResponseDue | None = None) -> T:
        """Return the result of `wait`, unless the brokers name another coordinator first. `due`: see replaced."""
        return await unless_replaced(wait, self._has_moved, due=due, check_s=RETRY_SOON_S)

    async def _has_moved(self) -> bool:
        return await self._coordinator() != self._coordinator_address

    async def _coordinator(self) -> Address:
        request = messages.FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[GROUP])
        response, _ = await self._client.send_request(ApiKey.FIND_COORDINATOR, request)
        (entry,) = response.coordinators
        if entry.error_code != ErrorCode.NONE:
            kind = NotReadyYet if entry.error_code in _ELSEWHERE else UpstreamLost
            raise kind(f"the coordinator of group {GROUP}: {error_name(entry.error_code)}")
        return self._client.address_of(entry.node_id, Address(entry.host, entry.port))

    async def _heartbeat_until_rebalance(self, heartbeat_connection: ClusterConnection, due: ResponseDue) -> None:
        while not self._must_rejoin:
            due.move(trio.current_time())
            if await self._heartbeat_once_loaded(heartbeat_connection) == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            if not self._must_rejoin:
                pause_s = self._pace.pause_s
                due.move(trio.current_time() + pause_s)
                await self._pace.wait(pause_s)

    async def _heartbeat_once_loaded(self, heartbeat_connection: ClusterConnection) -> ErrorCode:
        """Retry while a coordinator that was just elected still loads the group."""
        for _ in range(LOADING_BEATS):
            with suppress(NotReadyYet):
                return await self._heartbeat(heartbeat_connection)
            await trio.sleep(RETRY_MIN_S)
        return await self._heartbeat(heartbeat_connection)

    async def _heartbeat(self, heartbeat_connection: ClusterConnection, *, joining: bool = False) -> ErrorCode:
        """Send one heartbeat. Raises NotAMember, UpstreamLost."""
        request = messages.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance,
        )
        generation, sent = self.generation, self._clock()
        with trio.move_on_after(self._session_s):
            response = await heartbeat_connection.send_request(ApiKey.HEARTBEAT, request)
            code = ErrorCode.of(response.error_code)
            if generation != self.generation or (joining and code == ErrorCode.ILLEGAL_GENERATION):
                return ErrorCode.NONE  # the response belongs to an earlier generation and is void for this one
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                self._lease.on_heartbeat(code, sent)
                self._was_renewed()
                return code
            if code in _ELSEWHERE:
                raise NotReadyYet(f"the coordinator of group {GROUP}: {code.name}")
            self._lease.on_heartbeat(code, sent)
            raise self._membership_error(code)
        raise UpstreamLost(f"no response to a heartbeat within {self._session_s:g} s")

    def _was_renewed(self) -> None:
        self._group_trouble.ended()
        self._delay, self._failing_since = RETRY_MIN_S, inf
        self._events.renewed()

    async def _rejoin(self, address: Address, heartbeat_connection: ClusterConnection) -> None:
        """Join the next generation, and continue the heartbeats meanwhile."""

        joined = trio.Event()
        self._events.rejoins()

        async def keep_beating() -> None:
            while not joined.is_set():
                with trio.move_on_after(self._pace.rejoining_pause_s):
                    await joined.wait()
                    return  # a heartbeat in flight is not cancelled: its response would come before the next one's
                await self._unless_moved(partial(self._heartbeat, heartbeat_connection, joining=True))

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_beating)
                await self._join(address)
                joined.set()
        except BaseExceptionGroup as group:
            raise faults.first_of(group) from None

    # Joining

    async def _join(self, address: Address) -> None:
        """Raises NotAMember, UpstreamLost, RemoteProtocolError."""
        async with AsyncExitStack() as stack:
            joining = await self._dial(address, stack)
            while True:
                response = await self._request_to_join(joining)
                if response is None:
                    continue
                sent = self._clock()
                table = await self._sync(joining, response)
                if table is not None:
                    break
        self.generation = response.generation_id
        self._lease.joined(sent)
        self._apply_table(table)
        self._was_renewed()

    async def _request_to_join(self, joining: ClusterConnection) -> messages.JoinGroupResponse | None:
        self._must_rejoin = False
        owned = tuple(sorted(self._holding)) if self.is_valid() or self._peer else ()
        member = ProxyMember(
            self._address, owned, self._instance or "", self._peer, self._is_retiring, self._is_successor
        )
        metadata = ownership_rules.encode_member(member)
        request = messages.JoinGroupRequest
        timeout_ms = round(self._session_s * 1000)
        response = await joining.send_request(
            ApiKey.JOIN_GROUP,
            request(
                group_id=GROUP,
                session_timeout_ms=timeout_ms,
                rebalance_timeout_ms=timeout_ms,
                member_id=self._member_id,
                group_instance_id=self._instance,
                protocol_type=PROTOCOL_TYPE,
                protocols=[request.JoinGroupRequestProtocol(name=self._protocol, metadata=metadata)],
            ),
        )
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            return None
        if code in _ELSEWHERE:
            raise NotReadyYet(f"the coordinator of group {GROUP}: {code.name}")
        if code != ErrorCode.NONE:
            raise self._membership_error(code)
        self._member_id = response.member_id
        return response

    async def _sync(
        self, joining: ClusterConnection, joined: messages.JoinGroupResponse
    ) -> dict[str, OwnerInTable] | None:
        """None if the next generation has begun already."""
        request = messages.SyncGroupRequest
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            members = {each.member_id: ownership_rules.decode_member(bytes(each.metadata)) for each in joined.members}
            give = ownership_rules.spread if self._peer else ownership_rules.assign
            table = ownership_rules.encode_table(give(members, range(PARTITIONS)))
            entry = request.SyncGroupRequestAssignment
            assignments = [entry(member_id=member_id, assignment=table) for member_id in sorted(members)]
        response = await joining.send_request(
            ApiKey.SYNC_GROUP,
            request(
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                group_instance_id=self._instance,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=self._protocol,
                assignments=assignments,
            ),
        )
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        if code in _ELSEWHERE:
            raise NotReadyYet(f"the coordinator of group {GROUP}: {code.name}")
        if code != ErrorCode.NONE:
            raise self._membership_error(code)
        return ownership_rules.decode_table(bytes(response.assignment))

    def _apply_table(self, table: dict[str, OwnerInTable]) -> None:
        mine = {i: o for i, o in table.items() if ownership_rules.is_mine(i, o, self._member_id, self._instance)}
        other_owners = {member_id: owner for member_id, owner in table.items() if member_id not in mine}
        peers_before, self.peers = self.peers, frozenset(each.peer for each in other_owners.values() if each.peer)
        self.elsewhere = {p: owner.peer for owner in other_owners.values() if owner.peer for p in owner.partitions}
        self.trouble = ""
        self._assign(p for owner in mine.values() for p in owner.partitions)
        if self._peer:
            self._follow_others(peers_before)
            owned = sum(len(owner.partitions) for owner in table.values())
            self._pace.changed(is_moving=owned < PARTITIONS)
            self._notes("fleet-table", partitions=len(self.assigned), peers=sorted(self.peers))
        else:
            self._apply_single_owner(other_owners)
        self._is_only_member = not other_owners

    def _follow_others(self, peers_before: frozenset[str]) -> None:
        """End the wait for a member that retires: it has, or has left without."""
        if self._is_successor and (self.assigned or peers_before - self.peers):
            self._is_successor = False
            if not self.assigned:
                self._rejoin_soon()

    def _apply_single_owner(self, other_owners: dict[str, OwnerInTable]) -> None:
        if other_owners and self._is_only_member is not False:
            address = min(owner.address for owner in other_owners.values())
            self._notes("another-proxy", address=address, reason="cluster.mode is single")
        if not self.assigned:
            owner = next((owner.address for owner in other_owners.values() if owner.partitions), "none")
            what = ", ".join(self._serves)
            self.trouble = f"another proxy ({owner}) serves {what} on this cluster (cluster.mode: single)"
            self._note_of_served("standby", self.trouble)
            self._events.refused(self.trouble, None)

    def _assign(self, partitions: Iterable[int]) -> None:
        self.assigned = frozenset(partitions)
        self._holding |= self.assigned
        self._events.changed()

    # Trouble

    def _membership_error(self, code: ErrorCode) -> ProxyError:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._instance = None
            return NotAMember("a second proxy was started with the same name (cluster.name, or its address)")
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            return NotAMember(f"the group of proxies continued without this one ({code.name})")
        if code == ErrorCode.INVALID_SESSION_TIMEOUT:
            return RemoteProtocolError(
                f"the brokers do not allow cluster.session_timeout_s {self._session_s:g} (group.min.session.timeout.ms)"
            )
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return RemoteProtocolError(
                f"the proxies in group {GROUP} run with another cluster.mode or other workers than this one"
            )
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return RemoteProtocolError(f"the proxy's own identity needs READ on group {GROUP}")
        return RemoteProtocolError(f"group {GROUP}: {code.name}")

    def _drop(self, reason: str) -> None:
        self._lease.end()
        self._member_id, self.generation = "", -1
        if self.assigned:
            self._note_of_served("off", reason)
        self.trouble = reason
        self._assign(())
        self._holding.clear()

    def _note_of_served(self, event: str, reason: str) -> None:
        for served in self._serves:
            self._notes(f"{served.replace(' ', '-')}-{event}", reason=reason)

    def _report_unreachable(self, error: ProxyError) -> None:
        """Report trouble. Ownership continues while the lease is valid."""
        text = f"the group of proxies cannot be reached: {error}"
        if not self.is_valid():
            self._group_trouble.happened(text, patient=isinstance(error, NotReadyYet))
            self.trouble = text
            self._events.refused(text, error)

    async def _leave(self) -> None:
        if self.generation < 0 or self._will_rejoin:
            return
        request = messages.LeaveGroupRequest
        member = request.MemberIdentity(member_id=self._member_id, group_instance_id=self._instance, reason="shutdown")
        with trio.move_on_after(LEAVE_S, shield=True):
            try:
                address = await self._coordinator()
                async with self._connections.lend(address) as opened:
                    await opened.send_request(ApiKey.LEAVE_GROUP, request(group_id=GROUP, members=[member]))
            except ProxyError as error:
                self._notes("proxy-group-trouble", reason=f"leaving: {error}")

    @property
    def _will_rejoin(self) -> bool:
        """True if no other proxy waits for this one to leave, and the group recognizes its name after a restart."""
        return bool(self._is_only_member) and self._instance is not None and not self._lease.is_rebalancing


_ELSEWHERE = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
