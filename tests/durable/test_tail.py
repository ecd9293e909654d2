"""Following a state that another proxy owns: loaded, then live, with a known age; brokers and clock are scripted."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.durable import tail
from kafka_share_proxy.durable.state_host import BrokerAccess
from kafka_share_proxy.durable.tail import CHECK_S, FETCH_WAIT_S, Tail
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.records.records import Record
from trio.testing import MockClock

from tests.support.conditions import until
from tests.support.small_state import TEST_STATE, Texts, encode_key, partition_of
from tests.support.state_cluster import StateCluster
from tests.support.target_brokers import OTHER_NODE, WALL_MS

NAMES = {partition: next(f"t{n}" for n in range(999) if partition_of(f"t{n}") == partition) for partition in range(8)}


class Followed:
    """A tail that runs, what it holds, and an owner with producer id 7."""

    def __init__(self, cluster: StateCluster, access: BrokerAccess | None = None) -> None:
        self.cluster, self.texts, self.notes = cluster, Texts(), list[str]()
        wall_s = lambda: WALL_MS / 1000 + trio.current_time()  # noqa: E731
        self.errors, self.loaded = list[str](), list[bool]()
        self.tail = Tail(
            TEST_STATE,
            self.texts,
            access or cluster.access(self._note),
            wall_s=wall_s,
            on_read=lambda: self.loaded.append(self.tail.is_all_loaded),
            on_trouble=lambda error: self.errors.append(str(error)),
        )
        self.epoch = 0

    def _note(self, event: str, /, **_context: object) -> None:
        self.notes.append(event)

    def make(self) -> None:
        self.cluster.make(TEST_STATE.topic, 8)
        self.take_over()

    def take_over(self, epoch: int = 0) -> None:
        self.epoch = epoch
        for partition in range(8):
            self.write(partition, TEST_STATE.takeover("o:1", 0, 7, epoch), epoch=epoch)

    def write(self, partition: int, *records: Record, epoch: int | None = None) -> None:
        self.cluster.write(TEST_STATE.topic, partition, list(records), 7, self.epoch if epoch is None else epoch)

    def put(self, partition: int, text: str | None, epoch: int | None = None) -> None:
        now = WALL_MS + round(trio.current_time() * 1000)
        value = None if text is None else text.encode()
        self.write(partition, Record(encode_key(NAMES[partition]), value, timestamp=now), epoch=epoch)

    def run(self) -> None:
        self.cluster.nursery.start_soon(self.tail.run)

    async def holds(self, **texts: str) -> None:
        await until(lambda: self.texts.values == texts)


@pytest.fixture
def followed(nursery: trio.Nursery) -> Followed:
    return Followed(StateCluster(nursery))


async def test_stored_records_are_loaded_and_new_ones_follow(autojump_clock: MockClock, followed: Followed) -> None:
    """Three records, one of them deleted again; no append of a replaced owner."""
    followed.make()
    for partition in (1, 2, 3):
        followed.put(partition, "stored")
    followed.take_over(epoch=1)
    assert (followed.tail.is_all_loaded, followed.tail.age_s) == (False, inf)
    followed.run()
    with trio.fail_after(5):
        await followed.tail.loaded()
    assert followed.texts.values == {NAMES[n]: "stored" for n in (1, 2, 3)}
    followed.put(4, "new")
    followed.put(1, None)
    followed.put(2, "late", epoch=0)  # the broker forgot who wrote, and takes a late append
    await followed.holds(**{NAMES[2]: "stored", NAMES[3]: "stored", NAMES[4]: "new"})
    await trio.sleep(2)
    assert followed.texts.values[NAMES[2]] == "stored"


async def test_age_is_bounded_while_brokers_respond_and_grows_while_they_do_not(
    autojump_clock: MockClock, followed: Followed
) -> None:
    followed.make()
    followed.run()
    await followed.tail.loaded()
    await trio.sleep(5)
    assert followed.tail.age_s <= FETCH_WAIT_S + 0.01
    followed.cluster.leave()
    await trio.sleep(10)
    assert followed.tail.age_s > 9
    assert followed.tail.is_all_loaded, "what was known is known"
    assert "test-state-not-followed" in followed.notes
    followed.put(5, "meanwhile")
    followed.cluster.come_back()
    await followed.holds(**{NAMES[5]: "meanwhile"})
    await until(lambda: followed.tail.age_s < 1)
    assert "test-state-followed" in followed.notes


async def test_silent_leader_is_replaced_by_the_new_leader(autojump_clock: MockClock, followed: Followed) -> None:
    """It is known once a Fetch is late; from then on brokers are queried every second, and not before."""
    followed.make()
    followed.run()
    await followed.tail.loaded()
    followed.cluster.loses = ApiKey.FETCH
    await trio.sleep(9.5)
    assert followed.tail.age_s > 5
    assert followed.cluster.lost
    followed.cluster.move_leaders(OTHER_NODE)
    led = trio.current_time()
    followed.put(5, "afterwards")
    await followed.holds(**{NAMES[5]: "afterwards"})
    assert trio.current_time() - led <= 2 * SILENT_S


async def test_delay_from_append_to_here_is_known(autojump_clock: MockClock, followed: Followed) -> None:
    """A Fetch waits at the broker: appended records arrive immediately, and late if brokers were away."""
    followed.make()
    followed.run()
    await followed.tail.loaded()
    await trio.sleep(1)
    followed.put(5, "quick")
    await followed.holds(**{NAMES[5]: "quick"})
    assert followed.tail.delay_s < 0.05
    assert followed.tail.behind == 0
    followed.cluster.leave()
    await trio.sleep(1)
    followed.put(5, "slow")
    await trio.sleep(3)
    followed.cluster.come_back()
    await followed.holds(**{NAMES[5]: "slow"})
    assert 3 <= followed.tail.delay_s < 4


async def test_missing_topic_holds_nothing_and_is_followed_once_it_is_made(
    autojump_clock: MockClock, followed: Followed
) -> None:
    followed.run()
    with trio.fail_after(1):
        await followed.tail.loaded()
    assert followed.tail.age_s == 0
    followed.make()
    followed.put(5, "first")
    began = trio.current_time()
    await followed.holds(**{NAMES[5]: "first"})
    assert trio.current_time() - began < CHECK_S + 0.5


async def test_topic_that_is_deleted_and_made_anew_is_read_anew(autojump_clock: MockClock, followed: Followed) -> None:
    """The old content is dropped, whether or not the deletion was noticed in between."""
    followed.make()
    followed.put(1, "old")
    followed.run()
    await followed.holds(**{NAMES[1]: "old"})
    followed.cluster.target.delete_topic(TEST_STATE.topic)
    await followed.holds()
    followed.make()
    followed.put(2, "new")
    await followed.holds(**{NAMES[2]: "new"})
    followed.cluster.leave()
    await trio.sleep(1)
    followed.make()
    followed.put(3, "newer")
    followed.cluster.come_back()
    await followed.holds(**{NAMES[3]: "newer"})
    assert followed.notes.count("test-state-read-anew") == 2


async def test_topic_made_anew_between_two_fetches_is_noticed_although_it_is_longer(
    autojump_clock: MockClock, followed: Followed
) -> None:
    """The deletion was not noticed, and every requested offset exists."""
    followed.make()
    followed.put(1, "old")
    followed.run()
    await followed.holds(**{NAMES[1]: "old"})
    followed.make()
    for n in range(20):
        followed.put(2, f"new {n}")
    await followed.holds(**{NAMES[2]: "new 19"})
    assert followed.notes.count("test-state-read-anew") == 1
    assert set.union(*followed.texts.forgotten) == set(range(8))


async def test_internal_error_of_the_follower_ends_one_partition_only(
    autojump_clock: MockClock, followed: Followed
) -> None:
    """Any exception; the partition is read again when its topic is created again."""
    followed.make()
    apply = followed.texts.apply

    def faulty(key: bytes, value: bytes | None) -> None:
        if value == b"faulty":
            raise KeyError("a bug")
        apply(key, value)

    followed.texts.apply = faulty  # type: ignore[method-assign]
    followed.run()
    followed.put(3, "faulty")
    await until(lambda: followed.tail.unreadable)
    assert followed.tail.unreadable == {3: "a fault of ours: KeyError('a bug')"}
    followed.put(4, "read")
    await followed.holds(**{NAMES[4]: "read"})
    assert followed.notes.count("callback-failed") == followed.notes.count("test-state-unreadable") == 1
    followed.make()
    followed.put(3, "well")
    await followed.holds(**{NAMES[3]: "well"})
    assert followed.tail.is_all_loaded


async def test_waiters_get_the_outcome(autojump_clock: MockClock, followed: Followed) -> None:
    """Trouble with finding the topic, and everything that may have made it loaded."""
    errors, loaded = followed.errors, followed.loaded
    followed.cluster.leave()
    followed.run()
    await trio.sleep(1)
    assert errors[0] == "b1:9092: Connection refused; b2:9092: Connection refused"
    assert not loaded
    followed.cluster.come_back()
    followed.make()
    await until(lambda: loaded and loaded[-1])
    assert loaded[0] is False


async def test_truncated_log_is_read_from_its_start(autojump_clock: MockClock, followed: Followed) -> None:
    """A leader that lost the end of its log: what is held of that partition may never have been."""
    followed.make()
    followed.put(1, "lost")
    followed.put(2, "kept")
    followed.run()
    await followed.tail.loaded()
    followed.cluster.target.truncate_log(TEST_STATE.topic, 1, followed.cluster.log(TEST_STATE.topic, 1).end - 1)
    await followed.holds(**{NAMES[2]: "kept"})
    assert followed.texts.forgotten == [{1}]
    followed.put(1, "again")
    await followed.holds(**{NAMES[1]: "again", NAMES[2]: "kept"})


@pytest.mark.parametrize("record", [Record(b"\0\x09new", b"x"), Record(encode_key(NAMES[3]), b"unreadable")])
async def test_unreadable_partition_is_reported_and_others_continue(
    autojump_clock: MockClock, followed: Followed, record: Record
) -> None:
    followed.make()
    followed.write(3, record)
    followed.run()
    await until(lambda: followed.tail.unreadable)
    followed.put(3, "behind it")
    followed.put(4, "read")
    await followed.holds(**{NAMES[4]: "read"})
    assert set(followed.tail.unreadable) == {3}
    assert (followed.tail.is_loaded(3), followed.tail.is_loaded(4)) == (False, True)
    assert followed.tail.age_s == inf
    assert followed.notes.count("test-state-unreadable") == 1


async def test_idle_tail_requests_and_receives_no_partition(autojump_clock: MockClock, followed: Followed) -> None:
    """A fetch session (KIP-227), also after an eviction. The age of the state stays bounded."""
    requests, handlers = list[int](), followed.cluster.handlers
    fetch = handlers[ApiKey.FETCH]

    async def noted(call: TargetCall[Any]) -> Any:
        requests.append(sum(len(topic.partitions) for topic in call.request.topics))
        return await fetch(call)

    handlers[ApiKey.FETCH] = noted
    followed.make()
    followed.run()
    await followed.tail.loaded()
    followed.put(5, "one")
    await followed.holds(**{NAMES[5]: "one"})
    await trio.sleep(4 * FETCH_WAIT_S)
    assert requests[-3:] == [0, 0, 0]
    assert followed.tail.age_s <= 2 * FETCH_WAIT_S
    followed.cluster.evict_fetch_sessions()
    await trio.sleep(FETCH_WAIT_S)
    followed.put(4, "two")
    await followed.holds(**{NAMES[5]: "one", NAMES[4]: "two"})
    assert max(requests[1:]) == 8, "the session begun anew is complete"
    assert "test-state-read-anew" not in followed.notes


async def test_owner_fetches_its_own_appends_less_often(autojump_clock: MockClock, followed: Followed) -> None:
    """It knows them before; as soon as another proxy owns one partition, that is followed closely."""
    followed.make()
    followed.run()
    await followed.tail.loaded()
    counts = []
    for foreign in (None, 3):
        followed.tail.is_owned = lambda partition, foreign=foreign: partition != foreign  # type: ignore[misc]
        fetches_before = followed.cluster.requested.count(ApiKey.FETCH)
        for number in range(200):
            followed.put(5, f"{foreign} {number}")
            await trio.sleep(0.01)
        counts.append(followed.cluster.requested.count(ApiKey.FETCH) - fetches_before)
        await followed.holds(**{NAMES[5]: f"{foreign} 199"})
    assert counts[0] <= 15 < 60 <= counts[1]


def test_fetches_without_news_are_repeated_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, evicted sessions and lost leaders wake the task."""
    monkeypatch.setattr(tail, "FETCH_WAIT_S", 0.1)
    monkeypatch.setattr(tail, "FETCH_WAIT_MS", 100)
    reactor, read = Reactor(new_pump), list[int]()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            cluster = StateCluster(nursery)
            settings = ClusterClientSettings(reactor=reactor)
            address = await cluster.listen()
            access = cluster.access(lambda _event, **_context: None)._replace(settings=settings)
            followed = Followed(cluster, access._replace(client=lambda: ClusterClient([address], settings)))
            followed.make()
            followed.run()
            await followed.tail.loaded()
            steps = _Steps()
            trio.lowlevel.add_instrument(steps)
            for text in ("one", "two"):
                await trio.sleep(0.3)
                steps.names.clear()
                before, rounds = followed.cluster.requested.count(ApiKey.FETCH), len(followed.loaded)
                await until(lambda: followed.cluster.requested.count(ApiKey.FETCH) >= before + 5)  # noqa: B023
                assert steps.names == []
                assert len(followed.loaded) >= rounds + 4
                assert followed.tail.age_s <= 0.25
                followed.put(5, text)
                await followed.holds(**{NAMES[5]: text})
                cluster.evict_fetch_sessions()
            read.append(1)
            nursery.cancel_scope.cancel()

    try:
        reactor.run(main)
    finally:
        reactor.shut()
    assert read


class _Steps(trio.abc.Instrument):
    """Steps of the tasks that read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if "_read_from" in task.name:
            self.names.append(task.name)
