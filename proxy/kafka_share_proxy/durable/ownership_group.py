"""Membership in the group of proxies, which assigns the owners of state partitions (durable/README.md rules 20-25).

While a JoinGroup waits for the slowest member, heartbeats have a separate connection. A partition that this proxy must
release stays in its list until `stopped` is called. Then it rejoins, which starts a new generation. A lost coordinator:
`brokers.replaced`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from math import inf

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterConnection, InFlight
from kafka_share_proxy.brokers.replaced import ResponseDue
from kafka_share_proxy.durable import ownership_rules
from kafka_share_proxy.durable.group_coordinator import RETRY_SOON_S, GroupCoordinator
from kafka_share_proxy.durable.group_member import GroupMember, leave_request
from kafka_share_proxy.durable.heartbeat_pace import HeartbeatPace
from kafka_share_proxy.durable.heartbeats import RepeatedHeartbeats
from kafka_share_proxy.durable.member_changes import EndedMembers, Succession
from kafka_share_proxy.durable.member_errors import NotAMember, NotReadyYet, require_coordinator
from kafka_share_proxy.durable.ownership import OwnershipEvents
from kafka_share_proxy.durable.ownership_rules import (
    FLEET_PROTOCOL,
    PARTITIONS,
    PROTOCOL,
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
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost

MARGIN_SHARE = 0.25
"""Safety margin of the lease, as a fraction of the session timeout."""
RETRY_MIN_S, RETRY_MAX_S = 0.02, 0.2
"""Delays between two attempts to find the coordinator, with RETRY_SOON_S. The shortest follows a change: another
coordinator, or one that is loading. The longest applies after SOON_S.
"""
SOON_S = 30.0
"""Seconds within which brokers find another coordinator."""
LOADING_BEATS = 5
"""Heartbeats that may fail while the coordinator loads, before brokers are queried again."""
NEW_GROUP_S = 10.0
"""Seconds without a coordinator that are not reported: a new cluster creates its offsets topic first."""
LEAVE_S = 2.0
"""Maximum seconds for leaving the group at the end."""


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
        """
        Args:
            address: bootstrap address of this proxy, which log events of other proxies name.
            session_s: session timeout in seconds.
            clock: seconds, also those in which the machine is suspended.
            name: setting cluster.name.
            peer: address for other proxies of a fleet; empty if one owns everything.
            protocol: name that all members must have; empty: that of a fleet, or of one owner.
            serves: services that owners provide, for messages and event names.
            is_successor: see ProxyMember; for at most `member_changes.SUCCESSOR_S`.
        """
        self.lease_s = session_s
        self.trouble = "the group of proxies was not contacted yet"
        """Empty while this proxy is the owner."""
        self.assigned: frozenset[int] = frozenset()
        self.elsewhere: dict[int, str] = {}
        """Addresses of the other owners, by partition."""
        self.peers: frozenset[str] = frozenset()
        """Addresses of the other members."""
        self._peers_before = self.peers
        self._events = OwnershipEvents()
        """Events of `run`, without which nothing changes."""
        self._coordinator = GroupCoordinator(client)
        self._notes = notes
        self._address = address
        self._peer = peer
        self._serves = tuple(serves)
        # The peer address is part of the name: a static member that rejoined with another peer address would keep the
        # table unchanged, and the other members would not learn of it.
        instance = f"proxy-{name or address}" + (f"-{peer}" if peer else "")
        self._member = GroupMember(instance, protocol or (FLEET_PROTOCOL if peer else PROTOCOL), session_s)
        self._succession = Succession(is_successor=is_successor)
        self._ended = EndedMembers()
        self._pace = HeartbeatPace(session_s, in_fleet=bool(peer))
        self._session_s = session_s
        self._clock = clock
        self._lease = Lease(session_s, session_s, session_s * MARGIN_SHARE)
        self._repeated = RepeatedHeartbeats(clock, self._confirmed)
        self._holding: set[int] = set()
        """Partitions that must not be given to another proxy."""
        self._must_rejoin = self._is_joining = self._is_retiring = False
        self._is_only_member: bool | None = None
        """None before the first table."""
        self._delay = RETRY_MIN_S
        self._failing_since = inf
        self._group_trouble = LastingTrouble(
            notes, "proxy-group-trouble", "proxy-group-answers", patience_s=NEW_GROUP_S
        )

    @property
    def generation(self) -> int:
        """Generation of the last assignment. Negative without a membership."""
        return self._member.generation

    def is_valid(self) -> bool:
        if not self._holding:
            return False
        return self._clock() < self._lease.ends  # no call of `Lease`, or `bool`: every request reads it

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
        return bool(self.peers or self._peers_before)

    def retire(self) -> None:
        """Let others own everything. The membership continues."""
        self._is_retiring = True
        self._rejoin_soon()

    def member_ended(self, peer: str) -> bool:
        self._ended.add(peer)
        if not self._ended.peers:
            return False
        # Without a rebalance in progress, the next JoinGroup lists these partitions as owned, so no assignment can give
        # them to a member that is new.
        if self._peer and self._ended.peers >= self.peers and not (self._is_joining or self._lease.is_rebalancing):
            self.elsewhere = {}
            self._assign(range(PARTITIONS))
        self._rejoin_soon()
        return peer in self._ended.peers

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
                    self._end_membership(str(error))
                except ProxyError as error:
                    self._report_unreachable(error)
                await self._pause()
        finally:
            await self._leave()
            await self._coordinator.aclose()

    async def _pause(self) -> None:
        now = trio.current_time()
        self._failing_since = min(self._failing_since, now)
        await trio.sleep(self._delay)
        longest = RETRY_SOON_S if now - self._failing_since < SOON_S else RETRY_MAX_S
        self._delay = min(2 * self._delay, longest)

    # One coordinator

    async def _take_part(self) -> None:
        if await self._coordinator.find():
            self._delay = RETRY_MIN_S
        async with AsyncExitStack() as stack:
            connection = await self._coordinator.unless_moved(partial(self._coordinator.dial, stack))
            if self.generation < 0:
                await self._coordinator.unless_moved(partial(self._join, connection))
            while True:
                due = ResponseDue(trio.current_time())
                await self._coordinator.unless_moved(partial(self._heartbeat_until_rebalance, connection, due), due)
                await self._rejoin(connection)

    async def _heartbeat_until_rebalance(self, heartbeat_connection: ClusterConnection, due: ResponseDue) -> None:
        in_flight: InFlight | None = None
        while in_flight is not None or not self._must_rejoin:
            due.move(trio.current_time() if in_flight is None else in_flight.sent)
            if await self._heartbeat_once_loaded(heartbeat_connection, in_flight) == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            if self._succession.ends_by_time():
                self._rejoin_soon()
            in_flight = None if self._must_rejoin else await self._until_next_heartbeat(heartbeat_connection, due)

    async def _until_next_heartbeat(self, heartbeat_connection: ClusterConnection, due: ResponseDue) -> InFlight | None:
        """Wait until this task must act. Returns a heartbeat of the loop whose response is due."""
        repeated = self._repeated.on(heartbeat_connection, self._member.heartbeat())
        if repeated is None or self._succession.is_waiting:
            pause_s = self._pace.pause_s
            due.move(trio.current_time() + pause_s)
            await self._pace.wait(pause_s)
            return None
        due.move(inf)
        return await self._pace.repeat(repeated)

    def _confirmed(self, sent: float) -> float | None:
        self._lease.on_heartbeat(ErrorCode.NONE, sent)
        self._was_renewed()
        return None if self._must_rejoin else self._pace.pause_s

    async def _heartbeat_once_loaded(
        self, heartbeat_connection: ClusterConnection, in_flight: InFlight | None
    ) -> ErrorCode:
        """Retry while a new coordinator still loads the group."""
        for _ in range(LOADING_BEATS):
            with suppress(NotReadyYet):
                return await self._heartbeat(heartbeat_connection, in_flight)
            in_flight = None
            await trio.sleep(RETRY_MIN_S)
        return await self._heartbeat(heartbeat_connection)

    async def _heartbeat(
        self, heartbeat_connection: ClusterConnection, in_flight: InFlight | None = None, *, joining: bool = False
    ) -> ErrorCode:
        """Send one heartbeat, or receive the response of `in_flight`. Raises NotAMember, UpstreamLost."""
        generation, sent = self.generation, self._clock() if in_flight is None else self._repeated.sent
        began = trio.current_time() if in_flight is None else in_flight.sent
        response: messages.HeartbeatResponse | None = None
        with trio.move_on_at(began + self._session_s):
            if in_flight is None:
                response = await heartbeat_connection.send_request(ApiKey.HEARTBEAT, self._member.heartbeat())
            else:
                response = await self._repeated.finish(heartbeat_connection, in_flight)
        if response is None:
            raise UpstreamLost(f"no response to a heartbeat within {self._session_s:g} s")
        code = ErrorCode.of(response.error_code)
        if generation != self.generation or (joining and code == ErrorCode.ILLEGAL_GENERATION):
            return ErrorCode.NONE  # the response belongs to an earlier generation and is void for this one
        require_coordinator(code)
        self._lease.on_heartbeat(code, sent)
        if code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            raise self._member.error(code)
        self._was_renewed()
        return code

    def _was_renewed(self) -> None:
        self._group_trouble.ended()
        self._delay, self._failing_since = RETRY_MIN_S, inf
        self._events.renewed()

    async def _rejoin(self, connection: ClusterConnection) -> None:
        """Join the next generation, and continue the heartbeats meanwhile, on another connection."""
        await self._coordinator.unless_moved(partial(self._remove_ended, connection))
        joined = trio.Event()
        self._events.rejoins()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._heartbeat_until, joined)
                await self._join(connection)
                joined.set()
        except BaseExceptionGroup as group:
            raise faults.first_of(group) from None

    async def _heartbeat_until(self, joined: trio.Event) -> None:
        async with AsyncExitStack() as stack:
            connection: ClusterConnection | None = None
            while not joined.is_set():
                with trio.move_on_after(self._pace.rejoining_pause_s):
                    await joined.wait()
                    return  # a heartbeat in flight is not cancelled: its response would come before the next one's
                if connection is None:
                    connection = await self._coordinator.unless_moved(partial(self._coordinator.dial, stack))
                await self._coordinator.unless_moved(partial(self._heartbeat, connection, joining=True))

    async def _remove_ended(self, connection: ClusterConnection) -> None:
        """Remove members that have ended, again after a lost response or another coordinator."""
        ended = self._ended.to_remove()
        if not ended:
            return
        request = leave_request(ended.values(), "its process has ended")
        response = await connection.send_request(ApiKey.LEAVE_GROUP, request)
        require_coordinator(ErrorCode.of(response.error_code))
        self._ended.removed(ended)

    # Joining

    async def _join(self, connection: ClusterConnection) -> None:
        """Join the group and apply its table of owners. Raises NotAMember, UpstreamLost, RemoteProtocolError."""
        while True:
            response = await self._request_to_join(connection)
            if response is None:
                continue
            sent = self._clock()
            table = await self._sync(connection, response)
            if table is not None:
                break
        self._member.generation = response.generation_id
        self._lease.joined(sent)
        self._apply_table(table)
        self._was_renewed()

    async def _request_to_join(self, connection: ClusterConnection) -> messages.JoinGroupResponse | None:
        """Return the response, or None if the request must be repeated with the assigned member id."""
        self._must_rejoin, self._is_joining = False, True
        response = await connection.send_request(ApiKey.JOIN_GROUP, self._member.join(self._metadata()))
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member.member_id = response.member_id
            return None
        require_coordinator(code)
        if code != ErrorCode.NONE:
            raise self._member.error(code)
        self._member.member_id = response.member_id
        return response

    def _metadata(self) -> bytes:
        owned = tuple(sorted(self._holding)) if self.is_valid() or self._peer else ()
        member = ProxyMember(
            self._address,
            owned,
            self._member.instance or "",
            self._peer,
            self._is_retiring,
            self._succession.is_waiting,
        )
        return ownership_rules.encode_member(member)

    async def _sync(
        self, connection: ClusterConnection, joined: messages.JoinGroupResponse
    ) -> dict[str, OwnerInTable] | None:
        """Return the table of owners, or None if the next generation has begun already."""
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        assignments = self._new_assignments(joined) if is_leader else {}
        request = self._member.sync(joined.generation_id, assignments)
        response = await connection.send_request(ApiKey.SYNC_GROUP, request)
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        require_coordinator(code)
        if code != ErrorCode.NONE:
            raise self._member.error(code)
        return ownership_rules.decode_table(bytes(response.assignment))

    def _new_assignments(self, joined: messages.JoinGroupResponse) -> dict[str, bytes]:
        """Return the table of owners for each member, all the same."""
        members = {each.member_id: ownership_rules.decode_member(bytes(each.metadata)) for each in joined.members}
        assign = ownership_rules.spread if self._peer else ownership_rules.assign
        table = ownership_rules.encode_table(assign(members, range(PARTITIONS)))
        return dict.fromkeys(sorted(members), table)

    def _apply_table(self, table: dict[str, OwnerInTable]) -> None:
        own_id, instance = self._member.member_id, self._member.instance
        mine = {
            member_id: owner
            for member_id, owner in table.items()
            if ownership_rules.is_mine(member_id, owner, own_id, instance)
        }
        other_owners = {member_id: owner for member_id, owner in table.items() if member_id not in mine}
        self._ended.on_table(other_owners)
        self._peers_before, self.peers = self.peers, frozenset(each.peer for each in other_owners.values() if each.peer)
        self.elsewhere = {p: owner.peer for owner in other_owners.values() if owner.peer for p in owner.partitions}
        self.trouble = ""
        self._is_joining = False
        self._assign(p for owner in mine.values() for p in owner.partitions)
        if self._peer:
            self._apply_fleet(table)
        else:
            self._apply_single_owner(other_owners)
        self._is_only_member = not other_owners

    def _apply_fleet(self, table: dict[str, OwnerInTable]) -> None:
        has_fewer_members = not self._peers_before <= self.peers
        if (
            self._succession.ends_with_table(has_partitions=bool(self.assigned), has_fewer_members=has_fewer_members)
            and not self.assigned
        ):
            self._rejoin_soon()
        owned = sum(len(owner.partitions) for owner in table.values())
        self._pace.changed(is_moving=owned < PARTITIONS)
        self._notes("fleet-table", partitions=len(self.assigned), peers=sorted(self.peers))

    def _apply_single_owner(self, other_owners: dict[str, OwnerInTable]) -> None:
        if other_owners and self._is_only_member is not False:
            address = min(owner.address for owner in other_owners.values())
            self._notes("another-proxy", address=address, reason="cluster.mode is single")
        if not self.assigned:
            owner = next((owner.address for owner in other_owners.values() if owner.partitions), "none")
            served_features = ", ".join(self._serves)
            self.trouble = f"another proxy ({owner}) serves {served_features} on this cluster (cluster.mode: single)"
            self._note_of_served("standby", self.trouble)
            self._events.refused(self.trouble, None)

    def _assign(self, partitions: Iterable[int]) -> None:
        self.assigned = frozenset(partitions)
        self._holding |= self.assigned
        self._events.changed()

    # Trouble

    def _end_membership(self, reason: str) -> None:
        self._lease.end()
        self._member.forget_membership()
        if self.assigned:
            self._note_of_served("off", reason)
        self.trouble = reason
        self._assign(())
        self._holding.clear()

    def _note_of_served(self, event: str, reason: str) -> None:
        """Log an event for each service that owners provide, named after it."""
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
        with trio.move_on_after(LEAVE_S, shield=True):
            try:
                await self._coordinator.find()
                async with self._coordinator.lend() as opened:
                    await opened.send_request(ApiKey.LEAVE_GROUP, self._member.leave())
            except ProxyError as error:
                self._notes("proxy-group-trouble", reason=f"leaving: {error}")

    @property
    def _will_rejoin(self) -> bool:
        """True if no other proxy waits for this one to leave, and the group recognizes its name after a restart."""
        return bool(self._is_only_member) and self._member.instance is not None and not self._lease.is_rebalancing
