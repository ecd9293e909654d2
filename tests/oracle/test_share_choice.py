"""Kafka 4.3.0 has share groups, and the proxy in front of it serves some itself: local, forwarded, refused.

A group's side, seen at the brokers: they know the forwarded groups, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import QUICK, Running
from tests.support.raw import Topic
from tests.support.worlds import ACCEPT, Member, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

Fresh = Callable[[str], str]

RULES = [{"groups": "here-*", "serve": "local"}]
NOT_FOUND = 69


@pytest.fixture(scope="module")
def front(running: Running, kafka_43_quick: Cluster) -> Front:
    """Share groups named here-... live at the proxy, with their state in the cluster; all others as auto says."""
    settings = {"serve": "auto", "serve_by_group": RULES, "broker": QUICK}
    return running.front(kafka_43_quick.bootstrap, {"share_groups": settings})


@pytest.fixture
def worlds(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], World]]:
    """Make worlds of a bootstrap address whose groups begin with a prefix."""
    started_worlds: list[World] = []

    def make(bootstrap: str, prefix: str) -> World:
        started_worlds.append(World("world", bootstrap, f"{prefix}-{request.node.name[5:25]}"))
        return started_worlds[-1]

    yield make
    for world in started_worlds:
        world.close()


def described(world: World, group: str) -> int:
    """Return what ShareGroupDescribe says of a group."""
    on = world.raw.on_coordinator(group)
    return int(world.raw.send_request("ShareGroupDescribe", 1, on=on, group_ids=[group]).groups[0].error_code)


def joined(world: World, group: str, topic: Topic) -> tuple[int, str | None]:
    """The response to a first heartbeat."""
    response = world.member(group, "late").heartbeat(epoch=0, topics=[topic.name], silent=True)
    return response.error_code, response.error_message


def consumes(member: Member, topic: Topic, count: int) -> None:
    """Take and accept this many records."""
    deliveries = member.take_all(count, topic)
    ((_, spans),) = deliveries.items()
    response = member.acknowledge(*[(topic, 0, first, last, ACCEPT) for first, last, _ in spans])
    assert response.error == 0


def test_local(front: Front, kafka_43_quick: Cluster, worlds: Callable[[str, str], World]) -> None:
    """A group that a rule keeps here is served here, settings and all; the brokers never hear of it."""
    w, native = worlds(front.bootstrap, "here"), worlds(kafka_43_quick.bootstrap, "here")
    t = w.topic()
    g = w.group(lock_ms="1500")
    w.raw.produce(t, 10)
    consumes(w.member(g, topics=[t]), t, 10)
    assert described(w, g) == 0
    assert described(native, g) == NOT_FOUND
    assert "share.record.lock.duration.ms" in w.raw.describe(32, g)
    assert native.raw.describe(32, g)["share.record.lock.duration.ms"] == "30000"


def test_forwarded(front: Front, kafka_43_quick: Cluster, worlds: Callable[[str, str], World]) -> None:
    """Any other group is the brokers' own: a member through the proxy and one directly at the brokers share its
    records.
    """
    w, native = worlds(front.bootstrap, "there"), worlds(kafka_43_quick.bootstrap, "there")
    t = w.topic()
    g = w.group()
    a = w.member(g, topics=[t])
    b = native.member(g, "B", topics=[t])
    w.raw.produce(t, 5)
    assert a.take(t).acquired(t) == [(0, 4, 1)]
    w.raw.produce(t, 5)
    assert b.take(t).acquired(t) == [(5, 9, 1)]
    assert a.acknowledge((t, 0, 0, 4, ACCEPT)).error == 0
    assert (described(w, g), described(native, g)) == (0, 0)
    assert native.raw.describe(32, g)["share.auto.offset.reset"] == "earliest"


def test_both_in_one_response(front: Front, worlds: Callable[[str, str], World]) -> None:
    """Descriptions and lists hold the groups of both sides."""
    here, there = worlds(front.bootstrap, "here"), worlds(front.bootstrap, "there")
    t = here.topic()
    groups = [here.group(), there.group()]
    for world, group in zip((here, there), groups, strict=True):
        world.member(group, topics=[t])
    response = here.raw.send_request("ShareGroupDescribe", 1, on=here.raw.on_coordinator(groups[1]), group_ids=groups)
    assert [(g.group_id, g.error_code, g.group_state) for g in response.groups] == [(g, 0, "Stable") for g in groups]
    listed = here.raw.send_request("ListGroups", 5, states_filter=[], types_filter=["share"])
    assert {group.group_id for group in listed.groups} >= set(groups)


def test_refused_because_the_brokers_have_it(
    front: Front, kafka_43_quick: Cluster, worlds: Callable[[str, str], World]
) -> None:
    """An id that is to live here, and exists natively as a share group, is not taken a second time."""
    w, native = worlds(front.bootstrap, "here"), worlds(kafka_43_quick.bootstrap, "here")
    t = w.topic()
    g = native.group()
    native.member(g, topics=[t])
    code, text = joined(w, g, t)
    assert (code, "a share group of the cluster itself" in str(text)) == (NOT_FOUND, True)


@pytest.mark.parametrize("prefix", ["here", "there"])
def test_refused_because_it_is_of_another_type(front: Front, prefix: str, worlds: Callable[[str, str], World]) -> None:
    """One id is one type, wherever share groups of that name would live."""
    w = worlds(front.bootstrap, prefix)
    t = w.topic()
    g = w.group(start=None)
    response = w.raw.send_request(
        "ConsumerGroupHeartbeat", 0, on=w.raw.on_coordinator(g), group_id=g, member_id="", member_epoch=0,
        rebalance_timeout_ms=30_000, subscribed_topic_names=[t.name], topic_partitions=[],
    )  # fmt: skip
    assert response.error_code == 0
    assert joined(w, g, t)[0] == NOT_FOUND


def test_state_stays_and_is_not_hidden(
    front: Front, kafka_43_quick: Cluster, worlds: Callable[[str, str], World]
) -> None:
    """Without the rule a group with state here stays here; a rule that sends it away has it refused; once it is deleted
    it is the brokers' as any other."""
    w = worlds(front.bootstrap, "here")
    t = w.topic()
    g = w.group()
    w.raw.produce(t, 10)
    member = w.member(g, topics=[t])
    assert member.take(t).acquired(t) == [(0, 9, 1)]
    assert member.acknowledge((t, 0, 0, 3, ACCEPT)).error == 0
    assert member.heartbeat(epoch=-1).error_code == 0
    assert front.stop() == 0
    try:
        _sent_away_and_back(front, kafka_43_quick, worlds, g, t)
    finally:
        front.start()


def _sent_away_and_back(front: Front, kafka: Cluster, worlds: Callable[[str, str], World], g: str, t: Topic) -> None:
    sent_away = {"serve": "auto", "serve_by_group": [{"groups": "here-*", "serve": "upstream"}], "broker": QUICK}
    with Front(kafka.bootstrap, front.folder.with_name("proxy-away"), {"share_groups": sent_away}) as away:
        code, text = joined(worlds(away.bootstrap, "here"), g, t)
        assert (code, "it has state at the proxy" in str(text)) == (NOT_FOUND, True)
    with Front(kafka.bootstrap, front.folder.with_name("proxy-auto"), {"share_groups": {"broker": QUICK}}) as auto:
        stays = worlds(auto.bootstrap, "here")
        back = stays.member(g, "B", topics=[t])
        assert back.take(t).acquired(t)[0][0] == 4
        assert described(worlds(kafka.bootstrap, "here"), g) == NOT_FOUND
        new = stays.group("new")
        stays.member(new, topics=[t])
        assert described(worlds(kafka.bootstrap, "here"), new) == 0
        assert back.heartbeat(epoch=-1).error_code == 0
        deleted = stays.raw.send_request("DeleteGroups", 2, on=stays.raw.on_coordinator(g), groups_names=[g])
        assert [result.error_code for result in deleted.results] == [0]
        stays.member(g, "C", topics=[t])
        assert described(worlds(kafka.bootstrap, "here"), g) == 0
