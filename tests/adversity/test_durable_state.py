"""Share state survives the proxy and bad networks: accepted records are never delivered again, no other record is lost,
and delivery counts continue from the last stored value (durable/README.md).

One broker after a relay that cuts, stalls and loses responses; one proxy that is killed, suspended and started again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.sharegroups.state.state_records import TOPIC
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.brokers import OLD, QUICK, Running
from tests.support.java_tools import command, tool
from tests.support.raw import LIMIT_S, SET, TOPIC_RESOURCE, Raw, until
from tests.support.relay import Relay
from tests.support.worlds import ACCEPT, BEFORE_LOCK_S, REJECT, RELEASE, Member, Response, World

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Fresh = Callable[[str], str]
NODE = 1
LEASE_S = 6.0
SHARE_GROUPS, CONSUMER_GROUPS = "consumer.group.ShareGroupCommand", "consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def relay(kafka: Cluster) -> Iterator[Relay]:
    with Relay(kafka.bootstrap) as relay:
        yield relay


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster, relay: Relay) -> Front:
    upstream = {"bootstrap": kafka.bootstrap, "nodes": {NODE: relay.address}}
    return running.front(kafka.bootstrap, {"upstream": upstream, "share_groups": {"broker": QUICK}})


@pytest.fixture
def w(front: Front, relay: Relay, fresh: Fresh) -> Iterator[World]:
    relay.go_on()
    until(lambda: front.send_request("/readyz/share-groups")[0], "the proxy to be ready")
    world = World("proxy", front.bootstrap, fresh("w")[-16:])
    opened.append(world)
    yield world
    while opened:
        opened.pop().close()


opened: list[World] = []
"""Worlds of the test that runs."""


def world_again(w: World) -> World:
    """The same on new connections."""
    world = World(w.name, ",".join(map(str, w.raw.bootstrap)), w._prefix)
    opened.append(world)
    world._labels = w._labels
    return world


def again(w: World, member: Member, name: str = "") -> Member:
    """The same group (and member) on new connections."""
    return Member(world_again(w), member.group, name or member.member_id)


def crash(front: Front) -> None:
    front.kill()
    front.start()


def in_background(call: Callable[[], Any]) -> threading.Thread:
    def run() -> None:
        with suppress(OSError, EOFError):  # its connection ends with the proxy
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def nothing_more(member: Member, topic: Any) -> None:
    assert not member.fetch(topic, wait_ms=300).acquired(topic)


def steps(response: Response, topic: Any) -> list[tuple[int, int, int]]:
    return response.acquired(topic)


def test_state_topic_that_is_deleted_is_made_anew(w: World, front: Front, kafka: Cluster) -> None:
    """Its content is lost, settings of groups included: records are delivered again. Afterwards everything is stored as
    before.
    """
    topic = w.topic()
    w.raw.produce(topic, 10)
    member = w.member(w.group(), topics=[topic])
    assert steps(member.take(topic), topic) == [(0, 9, 1)]
    assert member.acknowledge((topic, 0, 0, 9, ACCEPT)).code(topic) == 0
    with Raw(kafka.bootstrap) as direct:
        before = direct.topic(TOPIC)
        assert before is not None
        direct.delete_topic(before)
        until(lambda: "share-state-topic-lost" in front.output(), "the proxy to notice")
        until(lambda: front.send_request("/readyz/share-groups")[0], "the proxy to be ready")
        recreated = direct.topic(TOPIC)
        assert recreated is not None
        assert recreated.topic_id != before.topic_id
    again_made = world_again(w)
    late = again_made.member(again_made.group(), "B", topics=[topic])
    assert steps(late.take(topic), topic) == [(0, 9, 1)]
    assert late.acknowledge((topic, 0, 0, 4, ACCEPT)).code(topic) == 0
    crash(front)
    assert steps(again(w, late, "C").take(topic), topic) == [(5, 9, 1)]


STEPS = ["acquired", "accepted", "released", "rejected", "timed out", "accept under way", "release under way"]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(step: str, w: World, front: Front, relay: Relay) -> None:
    """Confirmed is kept; what was only on its way may have happened or not, but nothing in between."""
    t = w.topic()
    w.raw.produce(t, 10)
    group = w.group(lock_ms="3000" if step == "timed out" else "30000")
    a = w.member(group, topics=[t])
    assert steps(a.take(t), t) == [(0, 9, 1)]
    expected: list[list[tuple[int, int, int]]] = [[(0, 9, 1)]]
    if step == "accepted":
        assert a.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
        expected = [[(5, 9, 1)]]
    elif step == "released":
        assert a.acknowledge((t, 0, 0, 4, RELEASE)).code(t) == 0
        expected = [[(0, 4, 2), (5, 9, 1)]]
    elif step == "rejected":
        assert a.acknowledge((t, 0, 3, 4, REJECT)).code(t) == 0
        expected = [[(0, 2, 1), (5, 9, 1)]]
    elif step == "timed out":
        time.sleep(3.6)
        expected = [[(0, 9, 2)]]
    elif step in ("accept under way", "release under way"):
        kind, done = (ACCEPT, (5, 9, 1)) if step.startswith("accept") else (RELEASE, (5, 9, 1))
        relay.lose_responses()
        in_background(lambda: a.acknowledge((t, 0, 0, 4, kind)))
        until(lambda: relay.lost_responses, "the append to be written")
        expected = [[(0, 9, 1)], [done] if kind == ACCEPT else [(0, 4, 2), done]]
    front.kill()
    relay.go_on()
    front.start()
    b = again(w, a, "B")
    got: list[tuple[int, int, int]] = []
    end = time.monotonic() + BEFORE_LOCK_S
    while time.monotonic() < end and not any(got == each for each in expected):
        response = b.fetch(t)
        assert response.error in (0, 122)
        b.epoch = 0 if response.error else b.epoch
        got = sorted([*got, *steps(response, t)])
    assert got in expected
    nothing_more(b, t)
    assert b.acknowledge((t, 0, got[-1][0], 9, ACCEPT)).code(t) == 0


def test_settings_and_groups_outlive_the_proxy(w: World, front: Front) -> None:
    """A member is requested to join again (25, never 69); the settings of its group are unchanged."""
    t = w.topic()
    group = w.group(lock_ms="1500", deliveries="3")
    a = w.member(group, topics=[t])
    epoch = a.member_epoch
    crash(front)
    b = again(w, a)
    b.member_epoch = epoch
    assert b.heartbeat(follow=False).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.heartbeat(0, topics=[t.name]).error_code == 0
    assert b.member_epoch > epoch
    b.join([t])
    b.world.raw.produce(t, 1)
    assert b.take(t).lock_ms == 1500
    assert b.fetch(t, epoch=5).error == 123


def test_start_offset_is_chosen_once(w: World, front: Front) -> None:
    """`latest` is not looked up again after a restart: records produced in the meantime are not skipped."""
    t = w.topic()
    w.raw.produce(t, 5)
    a = w.member(w.group(start="latest"), topics=[t])
    a.fetch(t)
    a.fetch(t)
    front.kill()
    front.start()
    b = again(w, a, "B")
    b.world.raw.produce(t, 3)
    assert steps(b.take(t), t) == [(5, 7, 1)]


def test_ten_thousand_share_partitions_are_read_in_time(w: World, front: Front) -> None:
    """After a crash of the proxy with 200 partitions in each of 50 groups: within ten seconds of its reading state."""
    t = w.topic(partitions=200)
    parts = [{"partition_index": index, "start_offset": index} for index in t.leaders]
    for number in range(50):
        response = w.raw.send_request(
            "AlterShareGroupOffsets", 0, on=w.raw.kept(w.raw.node(NODE)), group_id=f"{t.name}-{number}",
            topics=[{"topic_name": t.name, "partitions": parts}],
        )  # fmt: skip
        assert {part.error_code for each in response.responses for part in each.partitions} == {0}
    crash(front)
    until(lambda: front.send_request("/readyz/share-groups")[0], "the proxy to be ready")
    loads = re.findall(r"share-state-loaded .*seconds=(\S+) share_partitions=(\d+)", front.output())
    seconds, partitions = loads[-1]
    assert int(partitions) >= 10_000
    assert float(seconds) < 10


@pytest.mark.parametrize("trouble", ["answer lost", "cut", "stalled"])
def test_append_with_an_unknown_outcome(trouble: str, w: World, relay: Relay) -> None:
    """The same bytes are sent again until they are in the log; the client gets one response, with success."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    responses: list[Response] = []
    lost = relay.lost_responses
    if trouble == "answer lost":
        relay.lose_responses()
    else:
        relay.stall()
    thread = in_background(lambda: responses.append(a.acknowledge((t, 0, 0, 4, ACCEPT))))
    if trouble == "answer lost":
        until(lambda: relay.lost_responses > lost, "an answer to be lost")
    else:
        time.sleep(0.5)
    if trouble == "cut":
        relay.cut()  # the member's own connection upstream goes as well, and the member with it
    assert not responses
    relay.go_on()
    thread.join(LIMIT_S)
    if trouble != "cut":
        assert responses[0].code(t) == 0
        assert a.fetch(t).error == 0
    b = again(w, a, "B")
    want = [(5, 9, 1)] if trouble != "cut" else None
    a.disconnect()
    got = sorted(steps(b.take(t), t))
    if want is not None:
        assert [(first, last) for first, last, _ in got] == [(5, 9)]
    else:
        assert [(first, last) for first, last, _ in got] in ([(5, 9)], [(0, 9)], [(0, 4), (5, 9)])


def test_refused_append_gives_the_records_back(w: World, kafka: Cluster) -> None:
    """The store refuses definitely: the member gets an error, still holds the records, and may try again."""
    t = w.topic()
    w.raw.produce(t, 100)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    codes: list[int] = []  # one for each offset: the leader hears of the limit some time after the controller

    def is_refused() -> bool:
        codes.append(a.acknowledge((t, 0, len(codes), len(codes), ACCEPT)).code(t))
        return codes[-1] != 0

    with Raw(kafka.bootstrap) as direct:
        _limit_records(direct, "1")
        try:
            until(is_refused, "a refusal", limit_s=36, pause_s=0.4)
        finally:
            _limit_records(direct, "1048588")
    assert codes[-1] == -1
    until(lambda: a.acknowledge((t, 0, 99, 99, ACCEPT)).code(t) == 0, "the store to take it again")
    assert a.acknowledge((t, 0, len(codes) - 1, 98, ACCEPT)).code(t) == 0
    nothing_more(a, t)


@pytest.fixture
def little(w: World, front: Front, kafka: Cluster) -> Iterator[World]:
    """The state topic takes record batches of 20,000 bytes, and the proxy has read so."""
    too_large = front.output().count("MESSAGE_TOO_LARGE")  # other tests have it said
    with Raw(kafka.bootstrap) as direct:
        _limit_records(direct, str(LITTLE))
        try:
            crash(front)
            until(lambda: front.send_request("/readyz")[0], "the proxy to be ready")
            assert "state-message-bytes-low" in front.output()
            yield world_again(w)
        finally:
            _limit_records(direct, "1048588")
    assert front.output().count("MESSAGE_TOO_LARGE") <= too_large


LITTLE = 20_000


def settle_some(member: Member, topic: Any, accepted: set[int]) -> None:
    """Release every other record of the first deliveries; accept the rest, each of them once."""
    acks = []
    for first, last, count in member.fetch(topic).acquired(topic):
        offsets = range(first, last + 1)
        types = [ACCEPT if count > 1 or offset % 2 else RELEASE for offset in offsets]
        assert accepted.isdisjoint(offsets), "accepted records came again"
        accepted.update(offset for offset, kind in zip(offsets, types, strict=True) if kind == ACCEPT)
        acks.append((topic, 0, first, last, types))
    if acks:
        assert member.acknowledge(*acks).code(topic) == 0


def test_wide_log_batch_where_the_state_topic_takes_little(little: World, front: Front) -> None:
    """60,000 records in one batch, alternately accepted and released, would be 1.2 MB of state: the window goes over
    them in parts, and everything is settled, across a restart.
    """
    t = little.topic()
    little.raw.produce(t, [b""] * 60_000)
    a = little.member(little.group(), topics=[t])
    accepted: set[int] = set()
    end = time.monotonic() + 60
    while len(accepted) < 30_000 and time.monotonic() < end:
        settle_some(a, t, accepted)
    crash(front)
    until(lambda: front.send_request("/readyz")[0], "the proxy to be ready")
    b = again(little, a, "B")
    end = time.monotonic() + 60
    while len(accepted) < 60_000 and time.monotonic() < end:
        settle_some(b, t, accepted)
    assert len(accepted) == 60_000
    nothing_more(b, t)


def test_many_fragmented_share_partitions_in_one_request(little: World, front: Front) -> None:
    """120 snapshots of 10 kB and more in one acknowledgement, 1.2 MB: each is stored, none fails by the others."""
    count, records = 120, 520
    t = little.topic(partitions=count)
    for partition in t.leaders:
        little.raw.produce(t, [b""] * records, partition=partition)
    a = little.member(little.group(), topics=[t])
    places = [(t, partition) for partition in t.leaders]
    held: set[int] = set()
    end = time.monotonic() + BEFORE_LOCK_S
    while len(held) < count and time.monotonic() < end:
        response = a.fetch(*places, records=count * records, batch=count * records)
        held.update(p for p in t.leaders if response.acquired(t, p))
    types = [ACCEPT if offset % 2 else RELEASE for offset in range(records)]
    response = a.acknowledge(*[(t, partition, 0, records - 1, types) for partition in t.leaders])
    assert {response.code(t, partition) for partition in t.leaders} == {0}
    crash(front)
    until(lambda: front.send_request("/readyz")[0], "the proxy to be ready")
    b = again(little, a, "B")
    got = b.take(*places, records=count * records, batch=count * records)
    first = next(partition for partition in t.leaders if got.acquired(t, partition))
    assert got.acquired(t, first) == [(offset, offset, 2) for offset in range(0, records, 2)]


def _limit_records(raw: Raw, size: str) -> None:
    change = {"name": "max.message.bytes", "config_operation": SET, "value": size}
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": TOPIC, "configs": [change]}
    assert raw.send_request("IncrementalAlterConfigs", 1, resources=[resource]).responses[0].error_code == 0


def test_suspended_beyond_its_lease(w: World, front: Front) -> None:
    """A proxy that slept does not respond from its old state: it joins again, reads again, and continues."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    assert front.child is not None
    os.kill(front.child.pid, signal.SIGSTOP)
    try:
        time.sleep(LEASE_S + 1.5)
    finally:
        os.kill(front.child.pid, signal.SIGCONT)
    assert a.acknowledge((t, 0, 5, 9, ACCEPT)).error == 122
    until(lambda: front.send_request("/readyz/share-groups")[0], "the proxy to own its state again")
    a.disconnect()
    a.epoch = 0
    assert steps(a.take(t), t) == [(5, 9, 1)]


def _tools_at_a_standby(standby: Front, group: str) -> None:
    """A tool gets the address of the owner long before its own time-out of 30 s; other requests are served as usual."""
    began = time.monotonic()
    line = command(SHARE_GROUPS, "--bootstrap-server", standby.bootstrap, "--describe", "--group", group)
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert "another proxy" in done.stdout + done.stderr, done
    assert time.monotonic() - began < 20
    tool(CONSUMER_GROUPS, "--bootstrap-server", standby.bootstrap, "--list")
    lines = standby.output()
    assert ("share-groups-standby" in lines, "share-groups-served" in lines, "error" in lines) == (True, False, False)


def test_second_proxy_waits_and_takes_over(w: World, front: Front, running: Running, kafka: Cluster) -> None:
    """It refuses share groups and says why, until the first is suspended beyond its lease; that one then refuses."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(), topics=[t])
    a.take(t)
    assert a.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    second = Front(kafka.bootstrap, front.folder.parent / "second", {"share_groups": {"broker": QUICK}})
    second._wait_ready = lambda: until(
        lambda: "serves share groups" in second.send_request("/readyz/share-groups")[1], "its reason"
    )
    with second:
        elsewhere = World("second", second.bootstrap, w._prefix)
        opened.append(elsewhere)
        there = again(elsewhere, a)
        assert there.heartbeat(0, topics=[t.name], silent=True).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert second.send_request("/readyz")[0], "it forwards everything else"
        _tools_at_a_standby(second, a.group)
        assert a.fetch(t).error == 0, "the first goes on"
        assert front.child is not None
        os.kill(front.child.pid, signal.SIGSTOP)
        try:
            until(lambda: second.send_request("/readyz/share-groups")[0], "the second to own the state")
            assert steps(again(elsewhere, a, "C").take(t), t) == [(5, 9, 1)]
        finally:
            os.kill(front.child.pid, signal.SIGCONT)
        assert a.acknowledge((t, 0, 5, 9, ACCEPT)).error == 122
        assert not front.send_request("/readyz/share-groups")[0]
    until(lambda: front.send_request("/readyz/share-groups")[0], "the first to own the state again")
    assert front.child.status is None
