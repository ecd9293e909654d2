"""Fields that a broker leaves empty are never null here, and vice versa, in every local response.

A native 4.3.0 and the proxy with 3.9.1 get requests about share groups; the proxy gets requests about a view, and its
broker about a plain topic, of both releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.records import records

from tests.oracle.nulls import Requested, common_versions, differences
from tests.support import ports, view_broker
from tests.support.brokers import VIEWS, Running
from tests.support.raw import GROUP_RESOURCE, Raw, Topic, until
from tests.support.worlds import ACCEPT, Member, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

LOADING = (14, 15, 16)
"""The coordinator is not ready yet, or just moved."""
NO_ID = bytes(range(16))
BATCH = records.build_batch(0, [records.Record(key=b"k", value=b"v", timestamp=1)])


# Share groups: native 4.3.0, and the proxy in front of 3.9.1


def membership(w: Requested, world: World, topic: Topic) -> None:
    """Heartbeats: joined, not changed, of a stranger, and one that says nothing."""
    group, member = "nulls-members", f"{world.name}-member-0123456789"
    base = {"group_id": group, "member_id": member, "rack_id": None}
    w.tell("joins", "ShareGroupHeartbeat", **base, member_epoch=0, subscribed_topic_names=[topic.name])
    w.tell("a stranger", "ShareGroupHeartbeat", **base | {"member_id": "nobody"}, member_epoch=5)
    w.tell("no topics", "ShareGroupHeartbeat", **base, member_epoch=0, subscribed_topic_names=None)
    w.tell("leaves", "ShareGroupHeartbeat", **base, member_epoch=-1)


def deliveries(w: Requested, world: World, topic: Topic) -> None:
    """ShareFetch and ShareAcknowledge, with what a member may do wrong."""
    world.raw.produce(topic, 3)
    group = world.group("nulls-deliveries")
    for version in (1, 2):
        member = world.member(group, f"M{version}", [topic])
        stranger = Member(world, group, "stranger")

        def note(situation: str, response: Any, api: str = "ShareFetch", version: int = version) -> None:
            w.note(situation, api, version, response.message)

        note("a session that is not there", stranger.fetch(topic, epoch=7, version=version))
        note("records", member.take(topic, version=version))
        note("nothing", member.fetch(version=version, wait_ms=10))
        lost = Topic("gone", NO_ID, {0: 0})
        note("an unknown topic", member.fetch(lost, version=version, wait_ms=10))
        note("no such partition", member.fetch((topic, 99), version=version, wait_ms=10))
        acknowledged = member.fetch(acks=[(topic, 0, 0, 0, ACCEPT), (topic, 0, 70, 70, ACCEPT)], version=version)
        note("with acknowledgements", acknowledged)
        for situation, ack in {
            "acknowledged": (topic, 0, 1, 1, ACCEPT),
            "not held": (topic, 0, 500, 500, ACCEPT),
            "no such partition": (topic, 99, 1, 1, ACCEPT),
            "an unknown topic": (lost, 0, 1, 1, ACCEPT),
            "a type that is none": (topic, 0, 2, 2, 9),
        }.items():
            note(situation, member.acknowledge(ack, version=version), "ShareAcknowledge")
        note(
            "a wrong epoch", member.acknowledge((topic, 0, 2, 2, ACCEPT), epoch=99, version=version), "ShareAcknowledge"
        )
        note("the end", member.fetch(epoch=-1, version=version, wait_ms=0))
        member.heartbeat(-1)
        member.disconnect()
        stranger.disconnect()


def administration(w: Requested, world: World, topic: Topic) -> None:
    """Descriptions, offsets and settings of a group with a member, of an empty one, and of one that is not there."""
    group, empty, absent = world.group("nulls-admin"), world.group("nulls-empty"), "nulls-absent"
    member = world.member(group, "A", [topic])
    member.fetch(topic)
    world.member(empty, "B", [topic]).heartbeat(-1)
    groups = [group, empty, absent]
    w.tell("groups", "ShareGroupDescribe", group_ids=groups, include_authorized_operations=True)
    w.tell("a group by another API", "DescribeGroups", groups=groups, include_authorized_operations=True)
    w.tell("share groups", "ConsumerGroupDescribe", group_ids=groups[:2])  # 3.9.1 returns less here
    w.tell("groups", "ListGroups", only=lambda response: _keep_mine(response, groups))
    entry = {"topic_name": topic.name, "partitions": [0]}  # a native broker has no entry for a partition it lacks
    missing = {"topic_name": "nothing-of-the-kind", "partitions": [0]}
    every = {"topics": None}
    for situation, expected in {"all topics": every, "topics": {"topics": [entry, missing]}}.items():
        requested = [{"group_id": name, **expected} for name in groups]
        w.tell(situation, "DescribeShareGroupOffsets", groups=requested)
    parts = [{"partition_index": index, "start_offset": 0} for index in (0, 99)]
    for name in groups:
        topics = [{"topic_name": topic.name, "partitions": parts[:1]}, {"topic_name": "no-topic", "partitions": parts}]
        label = world.plain(name)
        w.tell(f"{label}", "AlterShareGroupOffsets", group_id=name, topics=topics)
        w.tell(
            f"{label}, no such partition",
            "AlterShareGroupOffsets",
            group_id=name,
            topics=[topics[0] | {"partitions": parts}],
        )
        lost = [{"topic_name": topic.name}, {"topic_name": "no-topic"}]
        w.tell(f"{label}", "DeleteShareGroupOffsets", group_id=name, topics=lost)
    settings(w, group, absent)
    foreign(w, group, topic)
    w.tell("groups", "DeleteGroups", groups_names=[group, absent])
    member.heartbeat(-1)
    member.disconnect()
    w.tell("an empty group", "DeleteGroups", groups_names=[empty])


def _keep_mine(response: Any, groups: list[str]) -> None:
    """Other tests have groups of their own on the same brokers."""
    response.groups = [each for each in response.groups if each.group_id in groups]
    assert response.groups


def settings(w: Requested, group: str, absent: str) -> None:
    """Settings of groups: shown, changed, refused."""
    of = {"resource_type": GROUP_RESOURCE, "resource_name": group}
    other = {"resource_type": GROUP_RESOURCE, "resource_name": absent}
    keys = ["share.record.lock.duration.ms"]
    for situation, extra in {
        "plain": {},
        "with all": {"include_synonyms": True, "include_documentation": True},
    }.items():
        requested = [{**of, "configuration_keys": keys}, {**other, "configuration_keys": keys}]
        w.tell(situation, "DescribeConfigs", resources=requested, **extra)
    key = "share.delivery.count.limit"
    for situation, value in {"set": "4", "out of bounds": "100000"}.items():
        for dry in (True, False):
            change = {"name": key, "config_operation": 0, "value": value}
            w.tell(
                f"{situation}, {dry}",
                "IncrementalAlterConfigs",
                resources=[{**of, "configs": [change]}],
                validate_only=dry,
            )
            plain = {"name": key, "value": value}
            w.tell(f"{situation}, {dry}", "AlterConfigs", resources=[{**of, "configs": [plain]}], validate_only=dry)
    w.tell("groups", "ListConfigResources", resource_types=[GROUP_RESOURCE])


def foreign(w: Requested, group: str, topic: Topic) -> None:
    """Requests of other kinds of groups under the id of a share group."""
    protocol = {"name": "range", "metadata": b""}
    on = w.raw.on_coordinator(group)
    of = {"group_id": group, "member_id": "foreign-member"}
    w.tell(
        "a share group", "JoinGroup", on=on, **of | {"member_id": ""}, session_timeout_ms=10_000,
        rebalance_timeout_ms=1000, protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    w.tell(
        "a share group", "ConsumerGroupHeartbeat", on=on, **of, member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic.name], topic_partitions=[],
    )  # fmt: skip
    commit = [
        {"name": topic.name, "topic_id": topic.topic_id, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    ]
    w.tell("a share group", "OffsetCommit", on=on, group_id=group, topics=commit)
    w.tell(
        "a share group", "TxnOffsetCommit", on=on, transactional_id="nulls", group_id=group, producer_id=1,
        producer_epoch=0, topics=commit,
    )  # fmt: skip
    lost = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    w.tell("a share group", "OffsetDelete", on=on, group_id=group, topics=lost)


NOT_ON_39 = {"StreamsGroupHeartbeat", "StreamsGroupDescribe"}
"""Served here, and not offered with 3.9.1: such a request gets an error and nothing else."""
SHARE_SCRIPTS = (membership, deliveries, administration)


def _play(name: str, bootstrap: str, other: str) -> Requested:
    with Raw(other) as elsewhere:
        world = World(name, bootstrap, "nulls")
        try:
            requested = Requested(world.raw, common_versions(world.raw, elsewhere))
            topic = world.topic("t", 1)
            for script in SHARE_SCRIPTS:
                script(requested, world, topic)
        finally:
            world.close()
    return requested


def test_null_against_empty_in_responses_about_share_groups(kafka_43_quick: Cluster, proxy_39_quick: Front) -> None:
    """Every API that share groups change, in every version both offer."""
    native = _play("native", kafka_43_quick.bootstrap, proxy_39_quick.bootstrap)
    proxy = _play("proxy", proxy_39_quick.bootstrap, kafka_43_quick.bootstrap)
    different = differences(native.reported, proxy.reported)
    assert not different, "\n".join(different)
    responded = {registry.API_KEYS[key] for key in share_group_apis.served(ports.World().services)}
    assert responded - proxy.apis == NOT_ON_39


# Views: through the proxy, and a plain topic at its broker


class Named:
    """Names in a script about topics; they differ between a view and a plain topic, the behaviour does not."""

    def __init__(self, topic: Topic, raw: Raw, *, missing: str, bad: str, unmade: list[str], refuses: str) -> None:
        self.topic, self.missing, self.bad, self.unmade, self.refuses = topic, missing, bad, unmade, refuses
        self.on = raw.kept(raw.node(topic.leaders[0]))
        self.unknown = Topic(missing, NO_ID, {0: 0})


def shown(w: Requested, n: Named) -> None:
    """Metadata and DescribeTopicPartitions: there, not there, a bad name, page by page."""
    for situation, name in {"there": n.topic.name, "missing": n.missing, "bad": n.bad}.items():
        topics = [{"name": name}]
        without_making = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
        w.tell(situation, "Metadata", since=4, topics=topics, **without_making)
        w.tell(situation, "DescribeTopicPartitions", topics=topics, response_partition_limit=2000, cursor=None)
    by_id = [{"name": None, "topic_id": topic_id} for topic_id in (n.topic.topic_id, NO_ID)]
    w.tell("by id", "Metadata", since=12, topics=by_id)
    w.tell("there, old versions", "Metadata", topics=[{"name": n.topic.name}])
    page = [{"name": n.topic.name}]
    w.tell("a page", "DescribeTopicPartitions", topics=page, response_partition_limit=1, cursor=None)


def fetched(w: Requested, n: Named) -> None:
    """Fetch: records, none, and every error of a partition; with either isolation, with and without a session."""
    places = {
        "records": (n.topic, 0, 0, -1), "the end": (n.topic, 0, 3, -1), "nothing there": (n.topic, 1, 0, -1),
        "beyond": (n.topic, 0, 99, -1), "no such partition": (n.topic, 99, 0, -1), "missing": (n.unknown, 0, 0, -1),
        "an epoch to come": (n.topic, 0, 0, 99),
    }  # fmt: skip
    for isolation in (0, 1):
        for session_epoch in (-1, 0):
            for situation, (topic, partition, offset, epoch) in places.items():
                part = {"partition": partition, "fetch_offset": offset, "current_leader_epoch": epoch}
                expected = {
                    "topic": topic.name,
                    "topic_id": topic.topic_id,
                    "partitions": [part | {"partition_max_bytes": 9999}],
                }
                w.tell(
                    f"{situation}, isolation {isolation}, session {session_epoch}", "Fetch", on=n.on, max_wait_ms=0,
                    min_bytes=0, isolation_level=isolation, session_epoch=session_epoch, topics=[expected],
                )  # fmt: skip


def looked_up(w: Requested, n: Named) -> None:
    """ListOffsets and OffsetForLeaderEpoch."""
    for situation, (topic, partition) in {
        "there": (n.topic, 0), "no such partition": (n.topic, 99), "missing": (n.unknown, 0)
    }.items():  # fmt: skip
        for timestamp in (-1, -2, 5, 1 << 60):
            part = {"partition_index": partition, "timestamp": timestamp}
            topics = [{"name": topic.name, "partitions": [part]}]
            w.tell(f"{situation}, {timestamp}", "ListOffsets", on=n.on, replica_id=-1, topics=topics)
        parts = [{"partition": partition, "leader_epoch": 0, "current_leader_epoch": -1}]
        requested = [{"topic": topic.name, "partitions": parts}]
        w.tell(situation, "OffsetForLeaderEpoch", on=n.on, replica_id=-2, topics=requested)


def refused(w: Requested, n: Named) -> None:
    """Send forbidden requests: written, cut, widened; created in a wrong way, deleted when absent."""
    data = [{"name": n.bad, "partition_data": [{"index": 0, "records": BATCH}]}]
    w.tell("refused", "Produce", on=n.on, acks=-1, timeout_ms=5000, topic_data=data)
    part = {"partition_index": 0, "offset": 0}
    cut = [{"name": n.refuses, "partitions": [part]}]
    w.tell("refused", "DeleteRecords", on=n.on, topics=cut, timeout_ms=5000)
    widened = [{"name": name, "count": 1, "assignments": None} for name in (n.refuses, n.missing)]
    w.tell("refused", "CreatePartitions", topics=widened, timeout_ms=5000)


def created_and_deleted(w: Requested, n: Named) -> None:
    """CreateTopics and DeleteTopics: well, twice, and badly; by name and by id."""

    def topic(name: str, partitions: int) -> dict[str, Any]:
        return {"name": name, "num_partitions": partitions, "replication_factor": 1}

    first, other = n.unmade
    w.tell("only tried", "CreateTopics", topics=[topic(first, 4)], timeout_ms=5000, validate_only=True)
    for situation, expected in {
        "done or there": topic(first, 4),
        "refused": topic(other, 0),
        "bad": topic(n.bad, 4),
    }.items():
        w.tell(situation, "CreateTopics", topics=[expected], timeout_ms=5000)
    until(lambda: w.raw.topic(first), first)
    by_name = [{"name": name} for name in (first, n.missing)]
    w.tell("by name", "DeleteTopics", since=6, topics=by_name, timeout_ms=5000)
    w.tell("not there", "DeleteTopics", topic_names=[n.missing], topics=[{"name": n.missing}], timeout_ms=5000)
    by_id = [{"name": None, "topic_id": each} for each in (n.topic.topic_id, NO_ID)]
    w.tell("by id", "DeleteTopics", since=6, topics=by_id, timeout_ms=5000)


def joined(w: Requested, n: Named) -> None:
    """ConsumerGroupHeartbeat: joined, and a stranger."""
    group = f"nulls-{n.topic.name.strip('_')}"
    on = w.raw.on_coordinator(group)
    of = {"group_id": group, "member_id": "a-member-0123456789012", "rebalance_timeout_ms": 1000}
    subscription = {"subscribed_topic_names": [n.topic.name], "topic_partitions": []}
    until(
        lambda: w.raw.send_request("ConsumerGroupHeartbeat", 0, on=on, **of, member_epoch=-1).error_code not in LOADING,
        group,
    )
    w.tell("joins", "ConsumerGroupHeartbeat", on=on, **of, member_epoch=0, **subscription)
    w.tell("a stranger", "ConsumerGroupHeartbeat", on=on, **of | {"member_id": "nobody"}, member_epoch=7)


def committed(w: Requested, n: Named) -> None:
    """JoinGroup of a stranger, OffsetCommit and TxnOffsetCommit, and what a transaction may not write to."""
    group = f"nulls-committed-{n.topic.name.strip('_')}"
    on = w.raw.on_coordinator(group)
    names = n.topic.name.encode()
    metadata = b"\0\0" + (1).to_bytes(4, "big") + len(names).to_bytes(2, "big") + names + b"\xff\xff\xff\xff"
    w.tell(
        "a stranger", "JoinGroup", on=on, group_id=group, member_id="nobody", session_timeout_ms=10_000,
        rebalance_timeout_ms=1000, protocol_type="consumer", protocols=[{"name": "range", "metadata": metadata}],
    )  # fmt: skip
    parts = [{"partition_index": index, "committed_offset": 1} for index in (0, 99)]
    topics = [{"name": each.name, "topic_id": each.topic_id, "partitions": parts} for each in (n.topic, n.unknown)]
    w.tell("no members", "OffsetCommit", on=on, group_id=group, topics=topics)
    producer = {"transactional_id": "nulls", "producer_id": 1, "producer_epoch": 0}
    w.tell("no producer", "TxnOffsetCommit", on=on, **producer, group_id=group, topics=topics)
    added = [{"name": n.topic.name, "partitions": [99]}, {"name": n.missing, "partitions": [0]}]
    w.tell(
        "refused", "AddPartitionsToTxn", v3_and_below_transactional_id="nulls", v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0, v3_and_below_topics=added,
        transactions=[producer | {"verify_only": True, "topics": added}],
    )  # fmt: skip


TOPIC_SCRIPTS = (shown, fetched, looked_up, refused, joined, committed, created_and_deleted)
SHARE_ON_VIEWS = {"ShareGroupHeartbeat", "ShareFetch", "AlterShareGroupOffsets"}
"""Share groups on views are refused: `test_null_against_empty_where_share_groups_meet_views`."""


@pytest.fixture(
    params=[
        pytest.param("3.9.1", marks=pytest.mark.xdist_group("kafka_39 others")),
        pytest.param("4.3.0", marks=pytest.mark.xdist_group("kafka_43")),
    ]
)
def broker(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue({"3.9.1": "kafka_39", "4.3.0": "kafka_43"}[request.param])
    return cluster


@pytest.fixture
def views(running: Running, broker: Cluster) -> Front:
    return running.front(broker.bootstrap, VIEWS)


@pytest.fixture
def two(broker: Cluster, views: Front) -> Iterator[tuple[Raw, Raw]]:
    with Raw(broker.bootstrap) as direct, Raw(views.bootstrap) as through:
        yield direct, through


def test_null_against_empty_in_responses_about_views(two: tuple[Raw, Raw], fresh: Callable[[str], str]) -> None:
    """Every API that views change, in every version: like a plain topic of the proxy's broker."""
    direct, through = two
    common = common_versions(direct, through)
    base, plain = direct.create_topic(fresh("base"), 2), direct.create_topic(fresh("plain"), 4)
    compacted = direct.create_topic(fresh("compacted"), 1, {"cleanup.policy": "compact"})
    for topic in (base, plain):
        direct.produce(topic, 3)
    view: Topic = until(lambda: through.view(f"__view.s2.{base.name}"), "the view")
    native, proxy = Requested(direct, common), Requested(through, common)
    names = Named(
        plain,
        direct,
        missing="no-such-topic",
        bad="a bad name",
        unmade=[fresh("m"), fresh("m")],
        refuses=compacted.name,
    )
    unmade = [f"__view.r{slots}.{base.name}" for slots in (2, 3)]
    theirs = Named(
        view, through, missing="__view.r2.no-such-topic", bad=f"__view.r0.{base.name}", unmade=unmade, refuses=view.name
    )
    for script in TOPIC_SCRIPTS:
        script(native, names)
        script(proxy, theirs)
    different = differences(native.reported, proxy.reported)
    assert not different, "\n".join(different)
    responded = {registry.API_KEYS[key] for key in view_apis.served(view_broker.World().views)}
    assert responded - proxy.apis == SHARE_ON_VIEWS


def test_null_against_empty_where_share_groups_meet_views(
    kafka_43_quick: Cluster, proxy_39_quick: Front, fresh: Callable[[str], str]
) -> None:
    """A view is refused to a share group as a broker refuses what it cannot serve."""
    with Raw(kafka_43_quick.bootstrap) as direct, Raw(proxy_39_quick.bootstrap) as through:
        common = common_versions(direct, through)
        base = through.create_topic(fresh("base"))
        view: Topic = until(lambda: through.view(f"__view.r2.{base.name}"), "the view")
        played = []
        for raw, group, topic in ((direct, "", Topic("nothing", NO_ID, {0: 0})), (through, fresh("g"), view)):
            w = Requested(raw, common)
            topic_names = [topic.name]
            heartbeat = {
                "group_id": group,
                "member_id": "m" * 22,
                "member_epoch": 0,
                "subscribed_topic_names": topic_names,
            }
            w.tell("a view", "ShareGroupHeartbeat", **heartbeat)
            expected = [
                {"topic_id": topic.topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
            ]
            of = {"group_id": fresh("fetching"), "member_id": "m" * 22, "share_session_epoch": 0, "max_wait_ms": 0}
            w.tell("a view", "ShareFetch", **of, max_bytes=9999, topics=expected)
            part = {"partition_index": 0, "start_offset": 0}
            altered = [{"topic_name": topic.name, "partitions": [part]}]
            w.tell("a view", "AlterShareGroupOffsets", group_id=fresh("altered"), topics=altered)
            played.append(w)
        different = differences(played[0].reported, played[1].reported)
        assert not different, "\n".join(different)
        assert played[1].apis == SHARE_ON_VIEWS
