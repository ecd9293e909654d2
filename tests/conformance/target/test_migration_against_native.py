"""Groups that change their type, also with members: the target responds as a native 4.3.0 with its default policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any

import pytest
import trio
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.consumer_protocol import read_assignment
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.blocking_connection import Connection
from tests.support.brokers import Running
from tests.support.consumer_metadata import assignment, subscription
from tests.support.raw import Raw, address, until
from tests.support.target_caller import running_cluster
from tests.support.two_clusters import NOTE, RECEIVE, Script, Step, Trace, differences, run_native, run_target

pytestmark = pytest.mark.broker

IMMEDIATE = {"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false"}
PARTITIONS = 12
"""Divisible by every number of members, so that all of them have the same number of partitions at both clusters."""
STEPS = 60
SEEDS = (0, 2)
"""Without 1: two runs at one broker differ at its end, because random member ids decide which partition moves."""
Steps = Generator[Step, Any, Any]


class Members:
    """Clients of one group, of both protocols. What is traced does not name partitions and members."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        self.ids: dict[str, str] = {}
        """Member ids of the classic clients."""
        self.epochs: dict[str, int] = {}
        """Generation or member epoch of each client."""
        self.owned: dict[str, list[int]] = {}
        self.leader = ""
        """Leader of the last generation of a classic group. In a stable group its JoinGroup begins a rebalance."""
        self.topic_id = b""

    def is_classic(self, name: str) -> bool:
        return name.startswith("c")

    def here(self, kind: str) -> list[str]:
        return sorted(name for name in self.epochs if name.startswith(kind))

    def _note(self, label: str, *values: Any) -> Step:
        return Step(NOTE, 0, {"response": [label, *values]})

    def _send(self, api: str, version: int, name: str, **values: Any) -> Step:
        full = {"group_id": self.group, **values}
        return Step(api, version, full, connection=int(name[1:]), is_traced=False)

    # The classic protocol

    def join_step(self, name: str, *, version: int = 9, **values: Any) -> Step:
        metadata = subscription([self.topic], {self.topic: self.owned.get(name, [])})
        full = {
            "member_id": self.ids.get(name, ""), "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer", "protocols": [{"name": each, "metadata": metadata} for each in "ab"],
        }  # fmt: skip
        return self._send("JoinGroup", version, name, **{**full, **values})

    def joined(self, name: str, response: Any) -> Steps:
        if response.error_code in (0, 79):
            self.ids[name] = response.member_id
        if response.error_code == 0:
            self.epochs[name] = response.generation_id
        yield self._note(
            "join", name, response.error_code, response.generation_id, response.protocol_type, response.protocol_name,
            bool(response.leader), bool(response.members), bool(response.member_id), response.skip_assignment,
        )  # fmt: skip

    def join(self, name: str, **values: Any) -> Steps:
        response = yield self.join_step(name, **values)
        yield from self.joined(name, response)

    def sync_step(self, name: str, assigned: Iterable[str] = (), **values: Any) -> Step:
        names = list(assigned)
        parts = [
            {
                "member_id": self.ids[each],
                "assignment": assignment({self.topic: list(range(PARTITIONS))[n :: len(names)]}),
            }
            for n, each in enumerate(names)
        ]
        full = {"member_id": self.ids[name], "generation_id": self.epochs[name], "assignments": parts}
        return self._send("SyncGroup", 5, name, **{**full, "protocol_type": "consumer", "protocol_name": "a", **values})

    def synced(self, name: str, response: Any) -> Steps:
        data = bytes(response.assignment)
        assigned = read_assignment(data)
        topics = [] if assigned is None else assigned.assigned_partitions
        if response.error_code == 0:
            self.owned[name] = [index for topic in topics for index in topic.partitions]
        shape = [(topic.topic, len(topic.partitions)) for topic in topics]
        yield self._note(
            "sync", name, response.error_code, response.protocol_type, response.protocol_name, data[:2], shape
        )

    def sync(self, name: str, **values: Any) -> Steps:
        response = yield self.sync_step(name, **values)
        yield from self.synced(name, response)

    def heartbeat(self, name: str, shift: int = 0, **values: Any) -> Steps:
        full = {"member_id": self.ids.get(name, name), "generation_id": self.epochs.get(name, 1) + shift, **values}
        response = yield self._send("Heartbeat", 4, name, **full)
        yield self._note("heartbeat", name, response.error_code)

    def leave(self, *names: str, **values: Any) -> Steps:
        members = [{"member_id": self.ids.get(name, name), **values} for name in names]
        response = yield self._send("LeaveGroup", 5, names[0], members=members)
        yield self._note("leave", names, response.error_code, [each.error_code for each in response.members])
        for name in names:
            self.forget(name)

    def forget(self, name: str) -> None:
        self.leader = "" if name == self.leader else self.leader
        for known in (self.ids, self.epochs, self.owned):
            known.pop(name, None)  # type: ignore[attr-defined]

    def rebalanced(self) -> Steps:
        """Let all members of a classic group join and sync."""
        names = self.here("c")
        for name in sorted(names, key=lambda each: each != self.leader):
            step = self.join_step(name)
            yield Step(step.api, step.version, step.values, step.connection, waits=False)
            yield from self._rebalance_begun() if len(names) > 1 else ()
        for name in names:
            response = yield Step(RECEIVE, 0, {}, int(name[1:]), is_traced=False)
            self.leader = name if response.leader == response.member_id else self.leader
            self.epochs[name] = response.generation_id
            yield self._note("rebalance", name, response.error_code, response.generation_id, response.protocol_name)
        for name in sorted(names, key=lambda each: each != self.leader):
            step = self.sync_step(name, names if name == self.leader else ())
            yield Step(step.api, step.version, step.values, step.connection, waits=False)
        for name in names:
            yield from self.synced(name, (yield Step(RECEIVE, 0, {}, int(name[1:]), is_traced=False)))

    def _rebalance_begun(self) -> Steps:
        """Wait until the join of the leader has arrived: before it, another member would get the last generation."""
        for _ in range(500):
            response = yield Step("DescribeGroups", 6, {"groups": [self.group]}, is_traced=False)
            if response.groups[0].group_state != "Stable":
                return
        raise TimeoutError

    # KIP-848

    def beat(self, name: str, *, full: bool = False, shift: int = 0, **values: Any) -> Steps:
        joins = name not in self.epochs
        owned = sorted(self.owned.get(name, ()))
        has = [{"topic_id": self.topic_id, "partitions": owned}] if owned and not joins else []
        more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self.topic]} if full or joins else {}
        epoch = self.epochs.get(name, 0) + shift
        response = yield self._send(
            "ConsumerGroupHeartbeat", 1, name,
            **{"member_id": name, "member_epoch": epoch, "topic_partitions": has, **more, **values},
        )  # fmt: skip
        count = None
        if response.assignment is not None:
            self.owned[name] = [i for topic in response.assignment.topic_partitions for i in topic.partitions]
            count = len(self.owned[name])
        if response.error_code == 0:
            self.epochs[name] = response.member_epoch
        yield self._note("beat", name, response.error_code, response.member_epoch, count)

    def quit(self, name: str, epoch: int = -1, **values: Any) -> Steps:
        full = {"member_id": name, "member_epoch": epoch, **values}
        response = yield self._send("ConsumerGroupHeartbeat", 1, name, **full)
        yield self._note("quit", name, response.error_code)
        self.forget(name)

    # Offsets and descriptions

    def commit(self, name: str, shift: int = 0, version: int = 9) -> Steps:
        partitions = [{"partition_index": index, "committed_offset": 5} for index in self.owned.get(name, [])[:3]]
        response = yield self._send(
            "OffsetCommit", version, name, member_id=self.ids.get(name, name), topics=[
                {"name": self.topic, "partitions": partitions or [{"partition_index": 0, "committed_offset": 1}]}
            ], generation_id_or_member_epoch=self.epochs[name] + shift,
        )  # fmt: skip
        codes = sorted({each.error_code for each in response.topics[0].partitions})
        yield self._note("commit", name, shift, version, codes)

    def offsets(self, name: str, shift: int = 0) -> Steps:
        member = {"member_id": self.ids.get(name, name), "member_epoch": self.epochs[name] + shift}
        response = yield Step("OffsetFetch", 9, {"groups": [{"group_id": self.group, **member, "topics": None}]},
                              is_traced=False)  # fmt: skip
        yield self._note("offsets", name, response.groups[0].error_code)

    def describe(self) -> Steps:
        response = yield Step("ConsumerGroupDescribe", 1, {"group_ids": [self.group]}, is_traced=False)
        group = response.groups[0]
        members = [
            (each.member_type, each.member_epoch, each.subscribed_topic_names, each.instance_id,
             _count(each.assignment), _count(each.target_assignment))
            for each in group.members
        ]  # fmt: skip
        heads = (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name)
        yield self._note("describe", heads, sorted(members, key=repr))
        response = yield Step("DescribeGroups", 6, {"groups": [self.group]}, is_traced=False)
        classic = response.groups[0]
        parts = [(each.group_instance_id, bytes(each.member_metadata)[:2], bytes(each.member_assignment)[:2])
                 for each in classic.members]  # fmt: skip
        heads = (classic.error_code, classic.group_state, classic.protocol_type, classic.protocol_data)
        yield self._note("describe classic", heads, sorted(parts, key=repr))
        response = yield Step("ListGroups", 5, {"states_filter": [], "types_filter": []}, is_traced=False)
        listed = [each for each in response.groups if each.group_id == self.group]
        yield self._note("list", [(each.group_type, each.group_state, each.protocol_type) for each in listed])


def _count(assigned: Any) -> int:
    return sum(len(topic.partitions) for topic in assigned.topic_partitions)


def _first(topic: str, group: str) -> Generator[Step, Any, Members]:
    members = Members(topic, group)
    response = yield Step("Metadata", 12, {"topics": [{"name": topic}]}, is_traced=False)
    members.topic_id = bytes(response.topics[0].topic_id)
    return members


def _classic_pair(members: Members) -> Steps:
    """Let two members form a stable classic group."""
    for name in ("c1", "c2"):
        yield from members.join(name)
        members.epochs[name] = 0
        yield from members.rebalanced()


def random_script(topic: str, group: str, rng: random.Random) -> Script:
    """Let members of both protocols come, go and rebalance."""
    members = yield from _first(topic, group)
    yield from _classic_pair(members)
    for _ in range(STEPS):
        modern, classic = members.here("m"), members.here("c")
        name = rng.choice([*modern, *modern, *classic] or [""])
        kind = rng.choice(["come", "go", "describe", "commit", "offsets", "odd", *["work"] * 6])
        if kind == "come" or not name:
            yield from _come(members, rng.choice(["m1", "m2", "c1", "c2"]))
        elif kind == "go":
            yield from members.leave(name) if members.is_classic(name) else members.quit(name)
            if modern and not members.here("m") and members.here("c"):
                for each in members.here("c"):
                    yield from members.heartbeat(each)
                yield from members.rebalanced()
        elif kind == "describe":
            yield from members.describe()
        elif kind == "commit":
            yield from members.commit(name, rng.choice([0, 0, -1, 1]), rng.choice([8, 9]))
        elif kind == "offsets":
            yield from members.offsets(name, rng.choice([0, 0, 1, -1]))
        elif kind == "odd":
            yield from members.heartbeat(rng.choice([name, "c9"]), rng.choice([0, 1, -1]))
        elif not members.is_classic(name):
            yield from members.beat(name, full=rng.random() < 0.3)
        elif modern:
            yield from _classic_work(members, name, rng)
        else:
            yield from members.rebalanced()
    yield from members.describe()


def _come(members: Members, name: str) -> Steps:
    if name in members.epochs:
        return
    if not members.is_classic(name):
        yield from members.beat(name)
        return
    yield from members.join(name)
    if members.here("m"):
        yield from members.join(name)
        yield from members.sync(name)
    else:
        members.epochs[name] = 0
        yield from members.rebalanced()


def _classic_work(members: Members, name: str, rng: random.Random) -> Steps:
    kind = rng.choice(["heartbeat", "heartbeat", "join", "join", "revoke", "sync"])
    if kind == "heartbeat":
        yield from members.heartbeat(name)
    elif kind == "sync":
        yield from members.sync(name)
    else:
        if kind == "revoke":
            members.owned[name] = []
        yield from members.join(name)
        yield from members.sync(name)


def conditions_script(topic: str, group: str, rng: random.Random) -> Script:
    """Upgrades that are refused, and members that the other protocol does not know."""
    members = yield from _first(topic, group)
    connect, empty = {"protocol_type": "connect"}, assignment({topic: []})
    bad = [{"name": "a", "metadata": b"?"}]
    for refused, sync in (
        (connect, {"protocol_type": "connect"}), ({"protocols": bad}, {}), ({}, {"assignment": b"?"}),
        ({}, {"assignment": empty[:-4] + b"\0\0\0\1u"}),
    ):  # fmt: skip
        yield from members.join("c1", **refused)
        yield from members.join("c1", **refused)
        part = [{"member_id": members.ids["c1"], "assignment": sync.pop("assignment", empty)}]
        yield from members.sync("c1", assignments=part, **sync)
        yield from members.beat("m1")
        yield from members.quit("m1")
        yield from members.heartbeat("c1")
        yield from members.describe()
        yield from members.leave("c1")
    yield from members.beat("m1")
    yield from members.describe()
    yield from members.join("c1", **connect)
    yield from members.join("c1", protocols=[])
    yield from members.join("c1", version=3, protocols=bad)
    yield from members.heartbeat("m1")
    members.ids["m1"] = "m1"
    yield from members.sync("m1")
    yield from members.join("c1", version=3)
    yield from members.sync("c1", protocol_name="b")
    yield from members.sync("c1", generation_id=77)
    yield from members.sync("c1")
    yield from members.join("c2", version=3, protocols=[{"name": "z", "metadata": subscription([topic], {})}])
    yield from members.join("c2", version=3)
    yield from members.describe()
    yield from members.beat("c1", full=True, member_id=members.ids["c1"])
    yield from members.describe()
    yield from members.leave("m1", "c9", "c2")
    yield from members.describe()
    yield from members.join("c3", member_id="own id", version=3)
    yield from members.quit("c1", member_id=members.ids["c1"])
    yield from members.describe()
    yield from members.beat("m2")


def static_script(topic: str, group: str, rng: random.Random) -> Script:
    """Static members that come back with the other protocol."""
    members = yield from _first(topic, group)
    one, two = {"group_instance_id": "one"}, {"group_instance_id": "two"}
    yield from members.beat("m1", instance_id="one")
    yield from members.beat("m2")
    yield from members.join("c1", version=9, **two)
    yield from members.sync("c1", **two)
    yield from members.beat("m2")
    old = members.ids.pop("c1")
    yield from members.join("c1", **two)
    yield from members.sync("c1", **two)
    yield from members.heartbeat("c1", **two)
    yield from members.heartbeat("c1", member_id=old, **two)
    yield from members.heartbeat("c1", group_instance_id="none")
    yield from members.join("c3", member_id="unknown", group_instance_id="three")
    yield from members.join("c3", member_id=old, **two)
    yield from members.describe()
    yield from members.beat("m4", instance_id="two")
    yield from members.describe()
    yield from members.beat("m5", instance_id="two")
    yield from members.quit("m2")
    yield from members.quit("m4", instance_id="two")
    yield from members.describe()
    yield from members.join("c5", version=3)
    yield from members.sync("c5")
    yield from members.join("c6", **one)
    yield from members.describe()
    yield from members.heartbeat("c6", **one)
    yield from members.heartbeat("c5")
    yield from members.sync("c6", **one)
    yield from members.sync("c5")
    yield from members.beat("m7", instance_id="one")
    yield from members.describe()
    yield from members.leave("m7", group_instance_id="one")
    yield from members.heartbeat("c5")
    yield from members.describe()


def alone_script(topic: str, group: str, rng: random.Random) -> Script:
    """Groups that change their type while they are empty, or with one static member."""
    members = yield from _first(topic, group)
    yield from members.join("c1", version=3)
    yield from members.leave("c1")
    yield from members.beat("m1", instance_id="one")
    yield from members.describe()
    yield from members.join("c1", group_instance_id="one")
    yield from members.describe()
    yield from members.sync("c1", group_instance_id="one")
    yield from members.heartbeat("c1", group_instance_id="one")
    yield from members.describe()
    yield from members.leave("c1", group_instance_id="one")
    yield from members.beat("m2")
    yield from members.quit("m2")
    yield from members.join("c2", version=3)
    yield from members.describe()


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.native(properties=IMMEDIATE)


@pytest.mark.parametrize(
    ("script", "seed"),
    [(conditions_script, 0), (static_script, 0), (alone_script, 0), *((random_script, seed) for seed in SEEDS)],
    ids=lambda each: str(each) if isinstance(each, int) else each.__name__.removesuffix("_script"),
)
async def test_groups_change_their_type_as_at_a_broker(
    script: Callable[[str, str, random.Random], Script], seed: int, kafka: Cluster, fresh: Callable[[str], str]
) -> None:
    topic, group = fresh("topic"), fresh("group")
    native = await trio.to_thread.run_sync(partial(_on_native, script, seed, kafka, topic, group))
    async with running_cluster(settings=ClusterSettings(consumer_assignment_interval_ms=0)) as cluster:
        cluster.create_topic(topic, PARTITIONS)
        target = await run_target(script(topic, group, random.Random(seed)), cluster)
    assert differences(native, target) == []


def _on_native(script: Any, seed: int, kafka: Cluster, topic: str, group: str) -> Trace:
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
        on, groups = raw.on_coordinator(group), [{"group_id": group, "topics": None}]
        until(lambda: not raw.send_request("OffsetFetch", 8, on=on, groups=groups).groups[0].error_code, "coordinator")
    where = address(kafka.bootstrap)
    return run_native(script(topic, group, random.Random(seed)), lambda: Connection(where, "test"))
