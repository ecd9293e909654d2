"""Several states under one ownership group: taken over, lost and given up together, each served as soon as it can be.

The group of proxies and the clock are scripted (`state_cluster`); two proxies meet at one cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.durable import replay
from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.durable.hosted_state import NOT_REQUESTED_S
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.durable.ownership import TOGETHER_MAX, OwnershipEvents
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.durable.partition_log import Replay
from kafka_share_proxy.durable.replay import ReplaySource
from kafka_share_proxy.durable.state_home import DRAIN_S, StateHome
from kafka_share_proxy.durable.state_host import BrokerAccess
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.sharegroups.state.held_state import HeldShareState
from kafka_share_proxy.sharegroups.state.state_records import PARTITIONS, SHARE_STATE, StateKey, group_value
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.records import Record
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.support import state_cluster
from tests.support.conditions import until
from tests.support.small_broker import Broker
from tests.support.small_state import TEST_STATE, HeldTexts, encode_key, partition_of
from tests.support.state_cluster import Loop, StateCluster
from tests.support.target_brokers import NODE, OTHER_NODE

GROUP = "g"
NUMBER = state_partition(GROUP)
"""State partition of the group."""
TEXT = next(f"t{n}" for n in range(1000) if partition_of(f"t{n}") == 3)
PRODUCE = 0


class ScriptedOwner:
    """The group of proxies, as the test says it is; see ownership.Owner."""

    def __init__(self) -> None:
        self.lease_s = 6.0
        self.assigned: frozenset[int] = frozenset()
        self.events = OwnershipEvents()
        self.gave_back: list[set[int]] = []
        self.valid = True
        self.has_joined = True
        self.has_retired = False
        self.has_others = False
        self.ended: list[str] = []

    @property
    def is_member(self) -> bool:
        return self.has_joined and self.valid

    async def run(self, events: OwnershipEvents) -> None:
        self.events = events
        await trio.sleep_forever()

    def stopped(self, partitions: Iterable[int]) -> None:
        if lost := set(partitions):
            self.gave_back.append(lost)

    def member_ended(self, peer: str) -> bool:
        self.ended.append(peer)
        return True

    def retire(self) -> None:
        self.has_retired = True

    @property
    def all_elsewhere(self) -> bool:
        return self.has_retired and not self.assigned

    def is_valid(self) -> bool:
        return self.valid

    def assign(self, numbers: Collection[int]) -> None:
        self.assigned = frozenset(numbers)
        self.events.changed()


class Proxy:
    """A proxy that hosts share state and the test state."""

    def __init__(self, cluster: StateCluster, name: str, *, fleet: bool, groups: dict[str, None] | None = None) -> None:
        self.notes: list[str] = []
        notes = self._note
        access = cluster.access(notes)
        loop: Any = Loop(cluster.nursery)
        self.owner = ScriptedOwner()
        self.coordinator, self.texts = ShareCoordinator(BrokerShareLimits()), HeldTexts()
        links: Any = SimpleNamespace(
            run=trio.sleep_forever, check_soon=lambda: None, missing=[], linked=[], recent_groups=set(groups or ())
        )
        self.home = StateHome(self.owner, access, loop, name, links=links if fleet else None)
        self.share = self.home.host(SHARE_STATE, HeldShareState(self.coordinator), state_partition)
        self.test = self.home.host(TEST_STATE, self.texts, partition_of)
        self.scope = trio.CancelScope()
        cluster.nursery.start_soon(self._run)

    def _note(self, event: str, /, **_context: Any) -> None:
        self.notes.append(event)

    async def _run(self) -> None:
        with self.scope:
            await self.home.run()

    def put(self, text: str, key: str = TEXT) -> Promise[None]:
        return self.test.journal.append([(key, text.encode())])

    def put_group(self) -> Promise[None]:
        return self.share.journal.append([(StateKey("group", GROUP), group_value(1))])

    @property
    def is_open(self) -> tuple[bool, bool]:
        """Return whether the group's share state, and the text, may be used."""
        return self.share.gate.lets_in([NUMBER]), self.test.gate.lets_in([3])


async def stored(promise: Promise[None]) -> None:
    await until(lambda: promise.done)
    promise.result()


def code_of(promise: Promise[None]) -> ErrorCode:
    with pytest.raises(JournalRefused) as caught:
        promise.result()
    return caught.value.code


@pytest.fixture
def jumping(autojump_clock: MockClock) -> MockClock:
    """Return a clock that jumps; pytest-trio uses it if a test requests it."""
    return autojump_clock


@pytest.fixture
def cluster(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> StateCluster:
    fake_cluster = StateCluster(nursery)
    state_cluster.install(monkeypatch, fake_cluster)
    return fake_cluster


EVERYTHING = range(PARTITIONS)


async def owning(cluster: StateCluster, name: str = "a:1", *, fleet: bool = True) -> Proxy:
    """A proxy that has taken everything over."""
    proxy = Proxy(cluster, name, fleet=fleet)
    proxy.owner.assign(EVERYTHING)
    await until(lambda: proxy.home.served == set(EVERYTHING))
    return proxy


async def test_one_takeover_covers_all_states(jumping: MockClock, cluster: StateCluster) -> None:
    """Topics are made, each partition begins with a takeover of its state, and both gates open."""
    proxy = await owning(cluster)
    assert [len(cluster.topic(s.topic).partitions) for s in (SHARE_STATE, TEST_STATE)] == [50, 8]
    record = cluster.read(TEST_STATE.topic, 3)[0]
    writers = cluster.target.transactions.producers
    assert TEST_STATE.owner_epoch_of(record.key or b"") == (writers["__proxy-test-3"].producer_id, 0)
    assert set(writers) == {
        *(f"__proxy-share-{n}" for n in range(50)),
        *(f"__proxy-test-{n}" for n in range(8)),
    }
    assert proxy.is_open == (True, True)
    assert {"share-state-loaded", "test-state-loaded"} <= set(proxy.notes)
    assert (proxy.home.why_not(SHARE_STATE.topic), proxy.home.why_not(TEST_STATE.topic)) == ("", "")
    assert proxy.home.state() == {"state_partitions": 50, "linked_proxies": []}
    assert proxy.texts.message_bytes == 1 << 20


async def test_what_one_proxy_stored_the_next_owner_loads(jumping: MockClock, cluster: StateCluster) -> None:
    """The owner was killed (kill -9); three records of one state, a group of the other."""
    first = await owning(cluster)
    for text in ("one", "two"):
        await stored(first.put(text, text))
    await stored(first.put("three"))
    await stored(first.put_group())
    first.scope.cancel()
    second = await owning(cluster, "b:1")
    assert second.texts.values == {"one": "one", "two": "two", TEXT: "three"}
    assert list(second.coordinator.groups) == [GROUP]


async def test_partition_that_moves_is_released_in_all_states(jumping: MockClock, cluster: StateCluster) -> None:
    """Both are stopped before the group of proxies is notified; then the other proxy loads both."""
    a, b = await owning(cluster), Proxy(cluster, "b:1", fleet=True)
    await stored(a.put("kept"))
    await stored(a.put_group())
    moving = {NUMBER, 3}
    a.owner.assign(set(EVERYTHING) - moving)
    await until(lambda: a.owner.gave_back == [moving])
    assert a.is_open == (False, False)
    assert (a.texts.values, list(a.coordinator.groups)) == ({}, [])
    assert a.share.gate.lets_in([n for n in EVERYTHING if n not in moving]), "all others are served on"
    b.owner.assign(moving)
    await until(lambda: b.home.served == moving)
    assert b.is_open == (True, True)
    assert (b.texts.values, list(b.coordinator.groups)) == ({TEXT: "kept"}, [GROUP])


def opened(gate: StateGate) -> list[set[int]]:
    """Return the partitions of each `open` from now on, once there are some."""
    opened_parts: list[set[int]] = []
    open_doors = gate.open

    def note(partitions: Collection[int] = ()) -> None:
        opened_parts.append(set(partitions))
        open_doors(partitions)

    gate.open = note  # type: ignore[method-assign,assignment]
    return opened_parts


async def test_partitions_of_known_groups_and_of_waiting_requests_are_served_before_all_others(
    jumping: MockClock, cluster: StateCluster
) -> None:
    await owning(cluster)
    proxy = Proxy(cluster, "b:1", fleet=True, groups={GROUP: None})
    shares, texts = opened(proxy.share.gate), opened(proxy.test.gate)
    proxy.test.gate.requested |= {3, 4}
    proxy.owner.assign(EVERYTHING)
    await until(lambda: proxy.home.served == set(EVERYTHING))
    everything = set(range(TEST_STATE.partitions))
    assert (texts[0], set().union(*texts)) == ({3, 4}, everything), "share groups are not of this state"
    assert (shares[0], set().union(*shares)) == ({NUMBER}, set(EVERYTHING))
    assert proxy.notes.count("test-state-loaded") == 1
    assert not proxy.test.gate.requested


async def test_request_during_a_takeover_waits_for_a_few_partitions_at_most(
    jumping: MockClock, cluster: StateCluster
) -> None:
    await owning(cluster)
    proxy = Proxy(cluster, "b:1", fleet=True, groups={GROUP: None})
    gate, late = proxy.share.gate, max(set(EVERYTHING) - {NUMBER})
    opening, opened_parts = gate.open, []

    def note(partitions: Collection[int]) -> None:
        opened_parts.append(set(partitions))
        opening(partitions)
        if len(opened_parts) == 2:
            gate.request({late})

    gate.open = note  # type: ignore[method-assign,assignment]
    proxy.owner.assign(EVERYTHING)
    await until(lambda: proxy.home.served == set(EVERYTHING))
    assert opened_parts[0] == {NUMBER}
    assert {late} in opened_parts[2:4]
    assert max(map(len, opened_parts)) == TOGETHER_MAX


@pytest.mark.parametrize("has_more", [False, True], ids=["nothing follows", "another owner follows"])
async def test_log_that_was_read_ahead_is_loaded_up_to_the_takeover_record(
    jumping: MockClock, cluster: StateCluster, monkeypatch: pytest.MonkeyPatch, has_more: bool
) -> None:
    """Also if it was read beyond, because another proxy took over at the same time."""
    first = await owning(cluster)
    await stored(first.put("kept"))
    first.scope.cancel()
    read, ahead = replay.read_ahead, []

    async def read_more(replays: Mapping[int, Replay], source: ReplaySource) -> None:
        await read(replays, source)
        ahead.append(source.topic)
        for each in replays.values() if has_more else ():
            each.next_offset += 100
            each.values[encode_key("later")] = b"later"

    monkeypatch.setattr(replay, "read_ahead", read_more)
    second = await owning(cluster, "b:1")
    assert TEST_STATE.topic in ahead
    assert second.texts.values == {TEXT: "kept"}


async def test_takeover_by_a_member_needs_no_lookup_and_one_fetch_after_the_takeover_record(
    jumping: MockClock, cluster: StateCluster
) -> None:
    first = await owning(cluster)
    first.scope.cancel()
    second = Proxy(cluster, "b:1", fleet=True)
    await trio.sleep(5)
    requested = cluster.requested
    requested.clear()
    second.owner.assign({3})
    await until(lambda: second.home.served == {3})
    lookups = {ApiKey.DESCRIBE_CONFIGS, ApiKey.CREATE_TOPICS}
    assert lookups.isdisjoint(requested)
    assert ApiKey.LIST_OFFSETS not in requested[requested.index(ApiKey.PRODUCE) :]
    after = requested[len(requested) - requested[::-1].index(ApiKey.PRODUCE) :]
    assert after.count(ApiKey.FETCH) <= 2, "one of each state"


async def test_request_during_a_slow_takeover_of_other_partitions_does_not_wait_for_it(
    jumping: MockClock, cluster: StateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of one of them is long, for one."""
    await owning(cluster)
    proxy = Proxy(cluster, "b:1", fleet=True)
    proxy.owner.has_others = True
    shares, began, ends = opened(proxy.share.gate), trio.Event(), trio.Event()
    read = replay.read

    async def slow_at_first(replays: Mapping[int, Replay], source: ReplaySource) -> None:
        if source.topic == SHARE_STATE.topic and not began.is_set():
            began.set()
            await ends.wait()
        await read(replays, source)

    monkeypatch.setattr(replay, "read", slow_at_first)
    proxy.owner.assign(EVERYTHING)
    await began.wait()
    late = max(set(EVERYTHING))
    proxy.share.gate.request({late})
    await until(lambda: shares)
    assert shares == [{late}]
    ends.set()
    await until(lambda: proxy.home.served == set(EVERYTHING))
    assert proxy.notes.count("share-state-loaded") == 1


@pytest.mark.parametrize("groups", [{}, {GROUP: None}])
async def test_proxy_takes_over_in_parts_while_others_serve_clients(
    jumping: MockClock, cluster: StateCluster, groups: dict[str, None]
) -> None:
    """Taking all over together would delay the group of a client that arrives then, and responses of brokers."""
    await owning(cluster)
    proxy = Proxy(cluster, "b:1", fleet=True, groups=groups)
    proxy.owner.has_others = True
    shares = opened(proxy.share.gate)
    remaining = set(EVERYTHING) - {NUMBER}
    proxy.owner.assign(remaining)
    await until(lambda: proxy.home.served == remaining)
    assert max(map(len, shares)) == TOGETHER_MAX


@pytest.mark.parametrize("requested", [False, True])
async def test_partitions_without_requests_leave_brokers_to_clients_at_first(
    jumping: MockClock, cluster: StateCluster, requested: bool
) -> None:
    await owning(cluster)
    proxy = Proxy(cluster, "b:1", fleet=True)
    proxy.owner.has_others = True
    await trio.sleep(1)  # while the topic is prepared
    shares = opened(proxy.share.gate)
    proxy.owner.assign(EVERYTHING)
    await trio.sleep(NOT_REQUESTED_S / 4)
    if requested:
        proxy.share.gate.request({7})
    await trio.sleep(NOT_REQUESTED_S / 2)
    assert shares == ([{7}] if requested else [])
    await until(lambda: proxy.home.served == set(EVERYTHING))
    assert shares[-1] != {7}


async def test_partition_released_before_its_takeover_is_not_taken_over(
    jumping: MockClock, cluster: StateCluster
) -> None:
    proxy = Proxy(cluster, "a:1", fleet=True)
    proxy.test.gate.requested |= {3}
    cluster.held[PRODUCE] = []
    proxy.owner.assign({3, 4, 5})
    await until(lambda: cluster.held[PRODUCE])
    proxy.owner.assign({5})
    await until(lambda: proxy.owner.gave_back)
    cluster.release(PRODUCE)
    await until(lambda: proxy.home.served == {5})
    assert proxy.test.owned == {5}


async def test_append_in_flight_is_stored_before_the_partition_moves(jumping: MockClock, cluster: StateCluster) -> None:
    proxy = await owning(cluster)
    cluster.held[PRODUCE] = []
    promise = proxy.put("late")
    await until(lambda: cluster.held[PRODUCE])
    proxy.owner.assign(set(EVERYTHING) - {3})
    await trio.sleep(DRAIN_S / 2)
    assert not proxy.owner.gave_back
    assert not proxy.test.gate.lets_in([3]), "nobody else is let in meanwhile"
    cluster.release(PRODUCE)
    await stored(promise)
    await until(lambda: proxy.owner.gave_back == [{3}])


async def test_append_without_a_response_delays_a_move_for_a_limited_time(
    jumping: MockClock, cluster: StateCluster
) -> None:
    proxy = await owning(cluster)
    cluster.held[PRODUCE] = []
    promise = proxy.put("late")
    began = trio.current_time()
    proxy.owner.assign(set(EVERYTHING) - {3})
    await until(lambda: proxy.owner.gave_back == [{3}])
    assert trio.current_time() - began < DRAIN_S + 0.1
    assert code_of(promise) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("fleet", [True, False])
async def test_partition_lost_in_one_state_is_lost_in_all(
    jumping: MockClock, cluster: StateCluster, fleet: bool
) -> None:
    """An owner that does not know yet is fenced by its next append; alone it gives everything up, and tries again."""
    zombie = await owning(cluster, fleet=fleet)
    await owning(cluster, "b:1", fleet=fleet)
    promise = zombie.put("too late")
    await until(lambda: promise.done)
    assert code_of(promise) == ErrorCode.NOT_COORDINATOR
    assert "test-state-lost" in zombie.notes
    assert not zombie.share.gate.lets_in([3])
    remaining = [n for n in EVERYTHING if n != 3]
    assert zombie.share.gate.lets_in(remaining) == fleet
    before = zombie.notes.count("share-state-loaded")
    await until(lambda: zombie.notes.count("share-state-loaded") > before)
    assert zombie.home.served == set(EVERYTHING), "it was assigned all the time"


async def test_internal_error_in_one_state_ends_all_ownership(jumping: MockClock, cluster: StateCluster) -> None:
    proxy = await owning(cluster)
    proxy.test.journal.failed(ValueError("a bug"))
    assert not proxy.share.gate.is_open
    assert not proxy.test.gate.is_open
    await until(lambda: proxy.share.gate.is_open)


async def test_state_that_cannot_be_loaded_does_not_delay_others(jumping: MockClock, cluster: StateCluster) -> None:
    """Its topic may not be made; once it may, it is served as well."""
    cluster.refuses_to_make = {TEST_STATE.topic}
    proxy = Proxy(cluster, "a:1", fleet=False)
    proxy.owner.assign(EVERYTHING)
    await until(lambda: proxy.share.gate.is_open)
    assert proxy.home.why_not(SHARE_STATE.topic) == ""
    assert "texts are off: topic __test_state cannot be created" in proxy.home.why_not(TEST_STATE.topic)
    assert proxy.home.served < set(EVERYTHING), "the numbers of its partitions are not served in all states"
    assert proxy.test.gate.refusal == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.refuses_to_make = set()
    await until(lambda: proxy.test.gate.is_open)
    assert "texts-on" in proxy.notes


@pytest.mark.parametrize(
    "record",
    [Record(b"\0\x09new", b"x"), Record(encode_key(TEXT), b"unreadable")],
    ids=["a type of a newer release", "a value the feature cannot read"],
)
async def test_partition_that_cannot_be_read_is_refused_in_its_state_alone(
    jumping: MockClock, cluster: StateCluster, record: Record
) -> None:
    cluster.make(TEST_STATE.topic, 8)
    cluster.write(TEST_STATE.topic, 3, [TEST_STATE.takeover("old:1", 0, 7, 0), record], 7, 0)
    proxy = await owning(cluster)
    assert set(proxy.test.gate.refused) == {3}
    assert proxy.share.gate.refused == {}
    assert "test-state-unreadable" in proxy.notes


async def test_earlier_owner_with_another_producer_id_is_waited_for(jumping: MockClock, cluster: StateCluster) -> None:
    """Nothing fences it: it stops by its own clock within its lease."""
    cluster.make(TEST_STATE.topic, 8)
    cluster.write(TEST_STATE.topic, 3, [TEST_STATE.takeover("old:1", 0, 7, 0)], 7, 0)
    proxy = Proxy(cluster, "a:1", fleet=False)
    began = trio.current_time()
    proxy.owner.assign(EVERYTHING)
    await until(lambda: proxy.share.gate.is_open)
    assert trio.current_time() - began < 2, "share state had no other owner"
    await until(lambda: proxy.test.gate.is_open)
    assert trio.current_time() - began >= proxy.owner.lease_s
    assert "test-state-old-owner" in proxy.notes


async def test_partition_released_while_it_is_loaded_is_not_served(jumping: MockClock, cluster: StateCluster) -> None:
    """Loading takes its time: what was on its way when the number moved is forgotten with the rest."""
    first = await owning(cluster)
    await stored(first.put("kept"))
    first.scope.cancel()
    proxy = Proxy(cluster, "b:1", fleet=True)
    loading, go_on = trio.Event(), trio.Event()
    load = proxy.texts.load

    async def slow(records: Iterable[tuple[bytes, bytes]]) -> None:
        if held := list(records):
            loading.set()
            await go_on.wait()
        await load(held)

    proxy.texts.load = slow  # type: ignore[method-assign]
    proxy.owner.assign({3, 4})
    await loading.wait()
    proxy.owner.assign({4})
    await trio.sleep(DRAIN_S * 2)
    assert not proxy.owner.gave_back, "nobody may take it over before it is forgotten"
    go_on.set()
    await until(lambda: proxy.owner.gave_back == [{3}])
    assert proxy.texts.values == {}
    await until(lambda: proxy.home.served == {4})


@pytest.mark.parametrize("step", [1, 2, 3, 5, 30, 62, 66, 68, 70])
async def test_takeover_waits_for_unreachable_brokers(jumping: MockClock, cluster: StateCluster, step: int) -> None:
    """It continues at every step of a takeover when they are back."""
    cluster.away_after = step
    proxy = Proxy(cluster, "a:1", fleet=False)
    proxy.owner.assign(EVERYTHING)
    await until(lambda: cluster.is_away)
    await trio.sleep(8.0)
    assert proxy.is_open != (True, True)
    cluster.away_after = inf
    cluster.come_back()
    await until(lambda: proxy.is_open == (True, True))


async def read_nothing(_replays: Mapping[int, Replay], _source: ReplaySource) -> None:
    """Read nothing ahead."""


async def test_silent_leader_is_replaced_during_a_replay(
    jumping: MockClock, cluster: StateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is read from the next leader as soon as there is one. The takeover record was stored before."""
    monkeypatch.setattr(replay, "read_ahead", read_nothing)
    first = await owning(cluster)
    await stored(first.put("one"))
    first.scope.cancel()
    cluster.move_leaders(NODE)
    cluster.loses = ApiKey.FETCH
    second = Proxy(cluster, "b:1", fleet=True)
    second.owner.assign(EVERYTHING)
    await trio.sleep(9.5)
    assert cluster.lost
    assert second.is_open == (False, False)
    cluster.move_leaders(OTHER_NODE)
    led = trio.current_time()
    await until(lambda: second.is_open == (True, True))
    assert trio.current_time() - led <= 2 * SILENT_S
    assert second.texts.values == {TEXT: "one"}


@pytest.mark.parametrize("made_anew", [False, True], ids=["deleted", "deleted and made anew by somebody"])
@pytest.mark.parametrize("appends", [False, True], ids=["nothing is appended", "something is appended"])
async def test_deleted_topic_is_created_again_and_its_state_is_lost(
    jumping: MockClock, cluster: StateCluster, made_anew: bool, appends: bool
) -> None:
    """It is lost here too; the other state continues, and everything stored from then on is there for the next
    owner.
    """
    proxy = await owning(cluster)
    await stored(proxy.put("gone"))
    proxy.texts.values[TEXT] = "gone"
    cluster.target.delete_topic(TEST_STATE.topic)
    if made_anew:
        cluster.make(TEST_STATE.topic, 8)
    promise = proxy.put("not stored") if appends else None
    await until(lambda: "test-state-topic-lost" in proxy.notes)
    await until(lambda: proxy.is_open == (True, True))
    assert proxy.texts.values == {}
    assert proxy.share.gate.lets_in(EVERYTHING)
    assert promise is None or code_of(promise) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert proxy.home.served == set(EVERYTHING)
    await stored(proxy.put("new"))
    proxy.scope.cancel()
    second = await owning(cluster, "b:1")
    assert second.texts.values == {TEXT: "new"}
    assert proxy.notes.count("test-state-topic-lost") == 1
    assert "share-state-topic-lost" not in proxy.notes


async def test_topic_deleted_during_a_takeover_is_created_again(jumping: MockClock, cluster: StateCluster) -> None:
    cluster.held[PRODUCE] = []
    proxy = Proxy(cluster, "a:1", fleet=True)
    proxy.owner.assign(EVERYTHING)
    await until(lambda: len(cluster.held[PRODUCE]) >= 2)
    cluster.target.delete_topic(TEST_STATE.topic)
    cluster.release(PRODUCE)
    await until(lambda: proxy.is_open == (True, True))
    await stored(proxy.put("kept"))


async def test_partition_released_while_its_topic_is_deleted_does_not_return(
    jumping: MockClock, cluster: StateCluster
) -> None:
    proxy = await owning(cluster)
    cluster.refuses_to_make = {TEST_STATE.topic}
    cluster.target.delete_topic(TEST_STATE.topic)
    await until(lambda: "test-state-topic-lost" in proxy.notes)
    proxy.owner.assign({NUMBER, 4})
    await until(lambda: proxy.owner.gave_back)
    cluster.refuses_to_make = set()
    await until(lambda: proxy.home.served == {NUMBER, 4})
    assert proxy.test.served == {n for n in (NUMBER, 4) if n < 8}


async def test_topic_that_one_broker_does_not_know_for_a_moment_is_not_lost(
    jumping: MockClock, cluster: StateCluster
) -> None:
    """Like a broker that has just started; held state is kept."""
    proxy = await owning(cluster)
    proxy.texts.values[TEXT] = "kept"
    topics, topic = cluster.target.topics, cluster.topic(TEST_STATE.topic)
    topics.remove(topic)
    proxy.test._leaders.check_soon()
    await trio.sleep(0.25)
    topics.add(topic)
    await trio.sleep(30)
    assert proxy.texts.values == {TEXT: "kept"}
    assert "test-state-topic-lost" not in proxy.notes


async def test_lease_that_ends_closes_all_gates_by_itself(jumping: MockClock, cluster: StateCluster) -> None:
    proxy = await owning(cluster)
    proxy.owner.valid = False
    assert proxy.is_open == (False, False)
    assert proxy.home.why_not(TEST_STATE.topic) == "the group of proxies has not responded for a while"
    waiting = proxy.test.gate.wait()
    proxy.owner.valid = True
    proxy.owner.events.renewed()
    assert waiting.done
    assert proxy.is_open == (True, True)


@pytest.mark.parametrize("fleet", [False, True])
async def test_proxy_that_lost_its_membership_is_not_ready(
    jumping: MockClock, cluster: StateCluster, *, fleet: bool
) -> None:
    """It knows the owners only after it has joined again."""
    proxy = Proxy(cluster, "a:1", fleet=fleet)
    proxy.owner.assign(EVERYTHING)
    await until(lambda: proxy.home.why_not(SHARE_STATE.topic) == "")
    proxy.owner.has_joined = False
    proxy.owner.assign(())
    await until(lambda: not proxy.home.served)
    for state in (SHARE_STATE, TEST_STATE):
        assert proxy.home.why_not(state.topic) == "the group of proxies has not responded for a while"


async def test_standby_names_the_serving_proxy_in_every_state(jumping: MockClock, cluster: StateCluster) -> None:
    proxy = Proxy(cluster, "b:1", fleet=False)
    await wait_all_tasks_blocked()
    proxy.owner.events.refused("another proxy (a:1) serves", None)
    assert (proxy.share.gate.standby, proxy.test.gate.standby) == ("another proxy (a:1) serves",) * 2
    proxy.owner.assign(EVERYTHING)
    await until(lambda: proxy.is_open == (True, True))
    assert (proxy.share.gate.standby, proxy.test.gate.standby) == ("", "")


async def test_proxy_that_hands_over_stores_appends_in_flight_and_waits_until_others_own_everything(
    jumping: MockClock, cluster: StateCluster
) -> None:
    proxy, handed_over = await owning(cluster, fleet=True), trio.Event()

    async def hand_over() -> None:
        await proxy.home.hand_over()
        handed_over.set()

    promise = proxy.put("last")
    cluster.nursery.start_soon(hand_over)
    await until(lambda: proxy.owner.has_retired)
    proxy.owner.assign(())
    await handed_over.wait()
    promise.result()
    assert proxy.owner.gave_back == [set(EVERYTHING)]
    assert proxy.test.gate.reason == "test state is owned by another proxy"


async def test_stopping_proxy_admits_no_request_and_stores_appends_in_flight(
    jumping: MockClock, cluster: StateCluster
) -> None:
    proxy = await owning(cluster)
    promise = proxy.put("last")
    await proxy.home.retire()
    promise.result()
    assert proxy.is_open == (False, False)
    assert proxy.test.gate.reason == "the proxy stops"


async def test_member_of_a_fleet_that_owns_nothing_is_ready(jumping: MockClock, cluster: StateCluster) -> None:
    proxy = Proxy(cluster, "b:1", fleet=True)
    proxy.owner.events.changed()
    await until(lambda: not proxy.home.why_not(TEST_STATE.topic))
    assert proxy.share.gate.why_not([NUMBER]) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "share state is owned by another proxy",
    )
    assert proxy.home.served == set()


def test_without_an_identity_states_are_off_and_the_proxy_is_ready() -> None:
    """Durable groups are refused, what is missing is named, the rest is served (durable/README.md rule 28)."""
    reactor = Reactor(new_pump)
    reported: list[str] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            broker = Broker(mechanism="PLAIN", ranges={3: (0, 12), 10: (0, 6), 17: (0, 1), 18: (0, 4), 36: (0, 2)})
            address = await broker.listen(nursery)
            notes: Any = lambda event, **_: reported.append(event)  # noqa: E731
            client = lambda: ClusterClient([address], ClusterClientSettings())  # noqa: E731
            access = BrokerAccess(client=client, settings=ClusterClientSettings(), own=None, notes=notes)
            held = HeldShareState(ShareCoordinator(BrokerShareLimits()))
            home = StateHome(Membership(client(), notes, "proxy:1", 6.0), access, reactor, "proxy:1")
            share = home.host(SHARE_STATE, held, state_partition)
            assert home.why_not(SHARE_STATE.topic) == "share state is not loaded yet"
            nursery.start_soon(home.run)
            with trio.fail_after(20):
                while not home.off:  # noqa: ASYNC110 - of another task's doing
                    await trio.sleep(0.02)
            assert "share groups are off" in home.off
            assert "(share_groups.state)" in home.off
            assert "upstream.sasl" in home.missing(SHARE_STATE.topic)
            assert home.why_not(SHARE_STATE.topic) == ""
            assert (share.gate.is_open, share.gate.refusal) == (False, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            assert "share-groups-off" in reported
            nursery.cancel_scope.cancel()

    try:
        reactor.run(main)
    finally:
        reactor.shut()


async def test_identity_without_write_is_reported_until_it_has_it(jumping: MockClock, cluster: StateCluster) -> None:
    """Waiters get 15 and the reason; the other state is served, and the log reports it once."""
    cluster.denies_writing = {TEST_STATE.topic}
    proxy = Proxy(cluster, "a:1", fleet=False)
    proxy.owner.assign(EVERYTHING)
    await until(lambda: proxy.is_open[0] and proxy.test.gate.denied)
    await trio.sleep(60)
    code, reason = proxy.test.gate.why_not([3])
    assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "TOPIC_AUTHORIZATION_FAILED" in reason
    assert f"WRITE on topic {TEST_STATE.topic} and on transactional ids __proxy-test-*" in reason
    assert proxy.notes.count(TEST_STATE.served_event("off")) == 1
    assert proxy.test.journal.appends < 40, "nobody gives a right within milliseconds"
    cluster.denies_writing = set()
    await until(lambda: proxy.is_open == (True, True))
    assert (proxy.test.gate.denied, proxy.home.why_not(TEST_STATE.topic)) == ("", "")
