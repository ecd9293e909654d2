"""Members of the group of proxies at a scripted coordinator, by a clock that jumps: how numbers move, and what ends it.

On real brokers: test_ownership_group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from kafka_share_proxy.durable import ownership_group
from kafka_share_proxy.durable.ownership import OwnershipEvents
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost
from kafka_share_proxy.wire.values import Address
from trio.testing import MockClock

SESSION_S = 6.0
ALL = frozenset(range(PARTITIONS))


class Coordinator:
    """The part of a classic group that proxies use: joins wait for all members, heartbeats report rebalances."""

    def __init__(self) -> None:
        self.generation = 0
        self.members: dict[str, bytes] = {}
        self.responses: dict[int, ErrorCode] = {}
        """API key -> the error that it returns, instead of its usual response."""
        self.silent = False
        self.slow_s = 0.0
        """How long each response takes."""
        self.port = 1
        """Port of the coordinator according to the brokers."""
        self.lost: dict[int, str] = {}
        """Ports that fail: no response (ANSWERS), no connection either (DIALS), or connection refused (REFUSES)."""
        self.dialled: list[int] = []
        self.found = 0
        """Number of coordinator lookups."""
        self._joined: dict[str, bytes] = {}
        self._tables: dict[int, bytes] = {}
        self._round = trio.Event()
        self._settings = None
        self._ids = 0

    async def send_request(self, key: int, request: Any) -> Any:
        await trio.sleep(self.slow_s)
        if self.silent:
            await trio.sleep_forever()
        if key in self.responses:
            return SimpleNamespace(error_code=self.responses[key], coordinators=[])
        responses = {
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: self._beat,
            ApiKey.LEAVE_GROUP: self._leave,
        }
        return await responses[key](request)

    async def _join(self, request: Any) -> Any:
        (protocol,) = request.protocols
        self._ids += not request.member_id
        member_id = request.member_id or f"m{self._ids}"
        self._joined[member_id] = protocol.metadata
        self._round.set() if not self.members.keys() - self._joined.keys() else None
        event = self._round
        with trio.move_on_after(SESSION_S):
            await event.wait()
        if self._joined:
            self.members, self._joined = self._joined, {}
            self.generation += 1
            event.set()
            self._round = trio.Event()
        members = [SimpleNamespace(member_id=i, metadata=data) for i, data in sorted(self.members.items())]
        leader = min(self.members)
        return SimpleNamespace(
            error_code=0,
            member_id=member_id,
            leader=leader,
            skip_assignment=False,
            generation_id=self.generation,
            members=members if member_id == leader else [],
        )

    async def _sync(self, request: Any) -> Any:
        for entry in request.assignments:
            self._tables[request.generation_id] = entry.assignment
        while request.generation_id not in self._tables:  # noqa: ASYNC110 - of the leader's doing
            await trio.sleep(0.01)
        return SimpleNamespace(error_code=0, assignment=self._tables[request.generation_id])

    async def _beat(self, request: Any) -> Any:
        if request.member_id not in self.members:
            return SimpleNamespace(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return SimpleNamespace(error_code=ErrorCode.REBALANCE_IN_PROGRESS if self._joined else ErrorCode.NONE)

    async def _leave(self, request: Any) -> Any:
        (member,) = request.members
        self.members.pop(member.member_id, None)
        return SimpleNamespace(error_code=0)


DIALS, RESPONSES, REFUSES = "dials", "answers", "refuses"


class At:
    """A connection to the coordinator at one port."""

    def __init__(self, coordinator: Coordinator, port: int) -> None:
        self._coordinator, self._port = coordinator, port

    async def send_request(self, key: int, request: Any) -> Any:
        how = self._coordinator.lost.get(self._port)
        if how == REFUSES:
            raise UpstreamLost("cut")
        if how is not None:
            await trio.sleep_forever()
        if self._port != self._coordinator.port:
            return SimpleNamespace(error_code=ErrorCode.NOT_COORDINATOR)
        return await self._coordinator.send_request(key, request)


class Client:
    """Finds the coordinator."""

    settings = None

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def send_request(self, _key: int, _request: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self._coordinator.found += 1
        if self._coordinator.silent:
            raise UpstreamLost("nobody is there")
        found = SimpleNamespace(error_code=0, node_id=1, host="c", port=self._coordinator.port)
        return SimpleNamespace(coordinators=[found]), None

    def address_of(self, _node_id: int, advertised: Any) -> Any:
        return advertised

    async def aclose(self) -> None:
        """There is nothing to close."""


class Member:
    """Member of one proxy, and the events it received."""

    def __init__(self, coordinator: Coordinator, name: str, nursery: trio.Nursery, *, fleet: bool) -> None:
        self.notes: list[str] = []
        self.refused: list[tuple[str, ProxyError | None]] = []
        note = lambda event, **_: self.notes.append(event)  # noqa: E731
        peer = f"{name}:9" if fleet else ""
        client: Any = Client(coordinator)
        self.part = Membership(
            client, note, name, SESSION_S, trio.current_time, peer=peer, serves=["share groups", "commits"]
        )
        self.gives_up = True
        """True if unassigned partitions are stopped immediately."""
        self._events = OwnershipEvents(
            changed=self._changed, refused=lambda reason, error: self.refused.append((reason, error))
        )
        self._held: set[int] = set()
        self.scope = trio.CancelScope()
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        with self.scope:
            await self.part.run(self._events)

    def _changed(self) -> None:
        gone = self._held - self.part.assigned
        self._held |= self.part.assigned
        if gone and self.gives_up:
            self.stop(gone)

    def stop(self, numbers: Iterable[int]) -> None:
        self._held.difference_update(numbers)
        self.part.stopped(numbers)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()

    @asynccontextmanager
    async def connection(address: Address, _settings: Any) -> AsyncIterator[At]:
        made.dialled.append(address.port)
        if made.lost.get(address.port) == REFUSES:
            raise UpstreamLost("refused")
        if made.lost.get(address.port) == DIALS:
            await trio.sleep_forever()
        yield At(made, address.port)

    monkeypatch.setattr(ownership_group, "connection", connection)
    return made


async def until(condition: Callable[[], object], limit_s: float = 60) -> None:
    with trio.fail_after(limit_s):
        while not condition():  # noqa: ASYNC110 - of another task's doing
            await trio.sleep(0.01)


async def test_number_is_given_away_once_its_owner_has_stopped(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator
) -> None:
    """Until then it has no owner: two owners of one number are never assigned."""
    a = Member(coordinator, "a", nursery, fleet=True)
    await until(lambda: a.part.assigned == ALL)
    a.gives_up = False
    b = Member(coordinator, "b", nursery, fleet=True)
    await until(lambda: len(a.part.assigned) == PARTITIONS // 2)
    gone = ALL - a.part.assigned
    await trio.sleep(3 * SESSION_S)
    assert b.part.assigned == frozenset()
    assert a.part.elsewhere == {}
    a.stop(gone)
    await until(lambda: b.part.assigned == gone)
    assert a.part.assigned == ALL - gone
    assert (set(a.part.elsewhere), a.part.peers) == (set(gone), {"b:9"})


async def test_member_that_leaves_is_followed_by_those_who_stay(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator
) -> None:
    a, b = (Member(coordinator, name, nursery, fleet=True) for name in "ab")
    await until(lambda: len(a.part.assigned) == len(b.part.assigned) == PARTITIONS // 2)
    b.scope.cancel()
    await until(lambda: len(coordinator.members) == 1)
    a.part._join_anew.set()  # as the coordinator would bring about with 27
    await until(lambda: a.part.assigned == ALL)
    assert a.part.peers == frozenset()


async def test_silent_coordinator_ends_the_lease_before_the_session(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator
) -> None:
    """From then on the group may have assigned everything elsewhere; the proxy keeps trying, because the group may
    respond again.
    """
    a = Member(coordinator, "a", nursery, fleet=True)
    await until(a.part.is_valid)
    coordinator.silent, since = True, trio.current_time()
    await until(lambda: not a.part.is_valid())
    assert trio.current_time() - since <= SESSION_S * (1 - ownership_group.MARGIN_SHARE) + 0.02
    assert a.part.assigned == ALL
    coordinator.silent = False
    await until(a.part.is_valid)


LEADERS_MOVE_S = 9.5
"""After a broker is lost, with Kafka's broker.session.timeout.ms."""


@pytest.mark.parametrize("how", [RESPONSES, DIALS, REFUSES])
async def test_lease_comes_back_as_soon_as_another_coordinator_is_named(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator, how: str
) -> None:
    """The old one refuses, or is unreachable so that a heartbeat or a dial to it hangs."""
    a = Member(coordinator, "a", nursery, fleet=False)
    await until(a.part.is_valid)
    coordinator.lost[1] = how
    since, found = trio.current_time(), coordinator.found
    await trio.sleep(LEADERS_MOVE_S)
    assert not a.part.is_valid()
    assert a.part.assigned == ALL
    coordinator.port, named = 2, trio.current_time()
    await until(a.part.is_valid)
    assert trio.current_time() - named <= 2 * ownership_group.RETRY_SOON_S
    seconds = trio.current_time() - since
    assert coordinator.found - found <= seconds / ownership_group.RETRY_SOON_S + 5
    assert coordinator.dialled.count(1) <= seconds / ownership_group.DIAL_AGAIN_S + 5
    coordinator.lost.clear()
    await trio.sleep(SESSION_S)
    assert a.part.is_valid(), "an old one that comes back does no harm"
    assert coordinator.dialled[-1] == 2


async def test_coordinator_that_loads_the_group_is_asked_again_over_the_same_connection(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator
) -> None:
    """For a moment it says that it is none. To dial it again and again takes longer, on busy machines ten times."""
    a = Member(coordinator, "a", nursery, fleet=False)
    await until(a.part.is_valid)
    coordinator.lost[1] = REFUSES
    await trio.sleep(LEADERS_MOVE_S)
    coordinator.port, named = 2, trio.current_time()
    coordinator.responses[ApiKey.HEARTBEAT] = ErrorCode.NOT_COORDINATOR
    await trio.sleep(4 * ownership_group.RETRY_MIN_S)
    coordinator.responses.clear()
    await until(a.part.is_valid)
    assert trio.current_time() - named <= ownership_group.RETRY_SOON_S + 6 * ownership_group.RETRY_MIN_S
    assert coordinator.dialled.count(2) == 1
    coordinator.port = 3
    await trio.sleep(SESSION_S)
    assert a.part.is_valid(), "one that is none for good is not asked for ever"
    assert coordinator.dialled[-1] == 3


async def test_slow_coordinator_that_is_still_named_is_waited_for(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator
) -> None:
    a = Member(coordinator, "a", nursery, fleet=False)
    await until(a.part.is_valid)
    coordinator.slow_s = 3.0
    dialled = len(coordinator.dialled)
    await trio.sleep(10 * SESSION_S)
    assert a.part.assigned == ALL
    assert len(coordinator.dialled) == dialled


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
async def test_member_that_the_group_went_on_without_gives_everything_up_and_joins_anew(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator, code: ErrorCode
) -> None:
    a = Member(coordinator, "a", nursery, fleet=False)
    await until(a.part.is_valid)
    coordinator.responses[ApiKey.HEARTBEAT] = code
    await until(lambda: not a.part.assigned)
    assert {"share-groups-off", "commits-off"} <= set(a.notes)
    assert not a.part.is_valid()
    coordinator.responses.clear()
    coordinator.members.clear()
    await until(a.part.is_valid)


async def test_second_proxy_of_the_same_name_stops_the_first(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator
) -> None:
    a = Member(coordinator, "a", nursery, fleet=False)
    await until(a.part.is_valid)
    coordinator.responses[ApiKey.HEARTBEAT] = ErrorCode.FENCED_INSTANCE_ID
    await until(lambda: not a.part.assigned)
    assert a.part.trouble == "a second proxy was started with the same address"
    assert a.part._instance is None, "it goes on without a name"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "another cluster.mode"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "needs READ on group"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "cluster.session_timeout_s 6"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"),
        (ErrorCode.NOT_COORDINATOR, "NOT_COORDINATOR"),
    ],
)
async def test_refusal_is_named_and_tried_again(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator, code: ErrorCode, words: str
) -> None:
    coordinator.responses[ApiKey.JOIN_GROUP] = code
    a = Member(coordinator, "a", nursery, fleet=False)
    await until(lambda: a.refused)
    reason, error = a.refused[0]
    assert words in reason
    assert error is not None
    coordinator.responses.clear()
    await until(a.part.is_valid)


async def test_standby_is_told_what_another_one_serves(
    autojump_clock: MockClock, nursery: trio.Nursery, coordinator: Coordinator
) -> None:
    a = Member(coordinator, "a", nursery, fleet=False)
    await until(a.part.is_valid)
    b = Member(coordinator, "b", nursery, fleet=False)
    await until(lambda: b.refused)
    assert b.refused == [
        ("another proxy (a) serves share groups, commits on this cluster (cluster.mode: single)", None)
    ]
    assert {"share-groups-standby", "commits-standby", "another-proxy"} <= set(b.notes)
    assert a.part.assigned == ALL
