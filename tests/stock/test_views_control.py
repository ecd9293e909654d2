"""Views made, shown, grown, refused, created again and administered in front of real brokers."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_share_proxy.app import cli
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from typer.testing import CliRunner

from tests.support.brokers import VIEWS, Running
from tests.support.raw import Raw, Topic, until
from tests.support.view_group import committed, produce

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    from kafka import KafkaConsumer

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(480),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # A closed kafka-python client occasionally leaves a connection to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Fresh = Callable[[str], str]
BATCH = records.build_batch(0, [records.Record(key=b"k", value=b"v", timestamp=1)])


@pytest.fixture(params=["3.9.1", "4.3.0"])
def front(request: pytest.FixtureRequest) -> Front:
    front: Front = request.getfixturevalue({"3.9.1": "views_39", "4.3.0": "views_43"}[request.param])
    return front


@pytest.fixture
def broker(front: Front, request: pytest.FixtureRequest) -> Iterator[Raw]:
    """Past the proxy."""
    cluster: Cluster = request.getfixturevalue(
        {"3.9.1": "kafka_39", "4.3.0": "kafka_43"}[request.node.callspec.params["front"]]
    )
    with Raw(cluster.bootstrap) as opened:
        yield opened


@pytest.fixture
def raw(front: Front) -> Iterator[Raw]:
    with Raw(front.bootstrap) as opened:
        yield opened


def metadata(raw: Raw, *names: str, version: int = 12, **fields: Any) -> Mapping[str, Any]:
    response = raw.send_request("Metadata", version, topics=[{"name": name} for name in names], **fields)
    return {topic.name: topic for topic in response.topics}


def create(raw: Raw, view: str) -> Mapping[str, Any]:
    """Have it created as by the first request of a reader; what Metadata shows of it then."""
    assert raw.view(view) is not None
    return metadata(raw, view)


def test_metadata_shows_a_view_and_what_needs_it_creates_it(raw: Raw, broker: Raw, fresh: Fresh) -> None:
    """All versions show the base's leaders, never an internal topic, and a topic id once it exists."""
    base = raw.create_topic(fresh("base"), 2)
    view = f"__view.r3.{base.name}"
    shown = metadata(raw, view, base.name, allow_auto_topic_creation=True)
    assert (bytes(shown[view].topic_id), len(shown[view].partitions)) == (bytes(16), 6)
    assert broker.topic(view) is None
    shown = create(raw, view)
    assert [part.leader_id for part in shown[view].partitions] == [base.leaders[p] for p in (0, 0, 0, 1, 1, 1)]
    assert shown[view].is_internal is False
    view_topic = broker.topic(view)
    assert view_topic is not None
    assert (bytes(shown[view].topic_id), len(view_topic.leaders)) == (view_topic.topic_id, 6)
    for version in range(13):
        again = metadata(raw, view, version=version)
        assert {name: len(topic.partitions) for name, topic in again.items()} == {view: 6}
    by_id = raw.send_request(
        "Metadata", 12, topics=[{"name": None, "topic_id": each} for each in (view_topic.topic_id, base.topic_id)]
    )
    assert {topic.name: len(topic.partitions) for topic in by_id.topics} == {view: 6, base.name: 2}
    every = raw.send_request("Metadata", 12, topics=None)
    assert base.name in (names := {topic.name for topic in every.topics})
    assert not [name for name in names if name.startswith("__")] or "__consumer_offsets" in names
    assert view not in names


def test_administrators_see_a_view_page_by_page(raw: Raw, fresh: Fresh) -> None:
    """DescribeTopicPartitions: the cursor counts the view's own partitions; one without a topic is shown whole."""
    base = raw.create_topic(fresh("base"), 2)
    view = f"__view.r4.{base.name}"
    requested = raw.send_request(
        "DescribeTopicPartitions", 0, topics=[{"name": view}], response_partition_limit=3, cursor=None
    )
    assert [(topic.name, topic.error_code, len(topic.partitions)) for topic in requested.topics] == [(view, 0, 8)]
    create(raw, view)
    listed_partitions: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        page = raw.send_request(
            "DescribeTopicPartitions", 0, topics=[{"name": base.name}, {"name": view}], response_partition_limit=3,
            cursor=cursor,
        )  # fmt: skip
        for topic in page.topics:
            assert {part.leader_id for part in topic.partitions} <= set(base.leaders.values())
            listed_partitions += [(topic.name, part.partition_index) for part in topic.partitions]
        if page.next_cursor is None:
            break
        cursor = {"topic_name": page.next_cursor.topic_name, "partition_index": page.next_cursor.partition_index}
    assert sorted(listed_partitions) == sorted([(base.name, p) for p in range(2)] + [(view, p) for p in range(8)])
    every = raw.send_request("DescribeTopicPartitions", 0, topics=[], response_partition_limit=2000, cursor=None)
    assert not [topic.name for topic in every.topics if topic.name.startswith(("__view.", "__proxy_"))]


def test_describing_creates_no_view(front: Front, raw: Raw, broker: Raw, fresh: Fresh) -> None:
    """Administrators' clients and tools, as kcat -L is one, and consumers before they join or read."""
    base = raw.create_topic(fresh("base"))
    view = f"__view.r2.{base.name}"
    admin = AdminClient({"bootstrap.servers": front.bootstrap})
    described = admin.describe_topics(TopicCollection([view]))[view].result()
    assert (described.name, len(described.partitions)) == (view, 2)
    for client in (admin, Producer({"bootstrap.servers": front.bootstrap})):
        assert sorted(client.list_topics(view, 10).topics[view].partitions) == [0, 1]
    assert broker.topic(view) is None


def test_bad_input_gets_its_error(raw: Raw, broker: Raw, fresh: Fresh) -> None:
    """Names, unknown bases and plans, and everything that would write into a view or change it by hand."""
    base = raw.create_topic(fresh("base"))
    view = f"__view.r2.{base.name}"
    names = {
        f"__view.r0.{base.name}": 17, f"__view.r1025.{base.name}": 17, f"__view.x2.{base.name}": 17,
        f"__view.r2.{view}": 17, f"__view.pnone.{base.name}": 17, "__view.r2.nothing-of-the-kind": 3, view: 0,
    }  # fmt: skip
    assert {name: topic.error_code for name, topic in metadata(raw, *names).items()} == names
    assert broker.topic("nothing-of-the-kind") is None
    on = raw.kept(raw.node(base.leaders[0]))
    assert _produced(raw, on, view) == {view: 17}
    assert _produced(raw, on, base.name, view) == {base.name: 0, view: 17}
    part = {"partition_index": 0, "offset": 0}
    deleted = raw.send_request(
        "DeleteRecords", 2, on=on, topics=[{"name": view, "partitions": [part]}], timeout_ms=1000
    )
    assert [each.error_code for each in deleted.topics[0].partitions] == [44]
    grown = raw.send_request(
        "CreatePartitions", 3, topics=[{"name": view, "count": 20, "assignments": None}], timeout_ms=1000
    )
    assert [each.error_code for each in grown.results] == [44]
    expected = [
        {"name": f"__view.r{slots}.{base.name}", "num_partitions": 5, "replication_factor": -1} for slots in (5, 6)
    ]
    response = raw.send_request("CreateTopics", 7, topics=expected, timeout_ms=5000)
    assert {each.name: each.error_code for each in response.topics} == {expected[0]["name"]: 0, expected[1]["name"]: 37}


def _produced(raw: Raw, on: Any, *names: str) -> dict[str, int]:
    data = [{"name": name, "partition_data": [{"index": 0, "records": BATCH}]} for name in names]
    response = raw.send_request("Produce", 9, on=on, acks=-1, timeout_ms=5000, topic_data=data)
    return {topic.name: topic.partition_responses[0].error_code for topic in response.responses}


def test_past_the_proxy_nothing_can_be_written_into_a_view_either(raw: Raw, broker: Raw, fresh: Fresh) -> None:
    """No record is small enough for its topic."""
    base = raw.create_topic(fresh("base"))
    view = f"__view.r2.{base.name}"
    create(raw, view)
    topic = broker.topic(view)
    assert topic is not None
    on = broker.kept(broker.node(topic.leaders[0]))
    assert _produced(broker, on, view) == {view: 10}


def test_stock_producers_end_immediately(front: Front, raw: Raw, fresh: Fresh) -> None:
    """librdkafka, plain and idempotent."""
    base = raw.create_topic(fresh("base"))
    view = f"__view.r2.{base.name}"
    metadata(raw, view)
    time.sleep(1.2)  # until Produce is looked into
    for idempotent in (False, True):
        errors: list[str] = []

        def delivered(error: Any, _: Any, errors: list[str] = errors) -> None:
            errors.append(error.name())

        producer = Producer({"bootstrap.servers": front.bootstrap, "enable.idempotence": idempotent, "log_level": 2})
        producer.produce(view, b"v", on_delivery=delivered)
        assert producer.flush(10) == 0
        assert errors == ["TOPIC_EXCEPTION"]


def test_every_client_finds_all_partitions_of_a_new_view(front: Front, raw: Raw, fresh: Fresh) -> None:
    """kafka-python and aiokafka by their own metadata; confluent-kafka in both protocols: see test_views, too."""
    base = raw.create_topic(fresh("base"))
    first, second = (f"__view.{kind}.{base.name}" for kind in ("r3", "s2"))
    consumer = KafkaConsumer(first, bootstrap_servers=front.bootstrap, group_id=None)

    def assigned() -> list[int]:
        consumer.poll(100)
        return sorted(each.partition for each in consumer.assignment())

    try:
        until(lambda: assigned() == [0, 1, 2], "all slots of a view nobody has made")
    finally:
        consumer.close()

    async def send_request() -> set[int] | None:
        consumer = AIOKafkaConsumer(second, bootstrap_servers=front.bootstrap, group_id=None)
        await consumer.start()
        try:
            partitions: set[int] | None = consumer.partitions_for_topic(second)
            return partitions
        finally:
            await consumer.stop()

    assert asyncio.run(send_request()) == {0, 1}
    admin = AdminClient({"bootstrap.servers": front.bootstrap})
    assert list(admin.list_topics(f"__view.r5.{base.name}", 10).topics[f"__view.r5.{base.name}"].partitions) == [
        *range(5)
    ]


def test_a_group_of_the_consumer_protocol_gets_a_view_that_its_heartbeat_makes(views_43: Front, fresh: Fresh) -> None:
    """librdkafka sends no Metadata for its subscription."""
    with Raw(views_43.bootstrap) as raw:
        base = raw.create_topic(fresh("base"))
        view = f"__view.r2.{base.name}"
        errors: list[str] = []
        consumer = Consumer(
            {
                "bootstrap.servers": views_43.bootstrap, "group.id": fresh("group"), "group.protocol": "consumer",
                "auto.offset.reset": "earliest", "log_level": 2, "error_cb": lambda error: errors.append(str(error)),
            }
        )  # fmt: skip
        consumer.subscribe([view])

        def assigned() -> list[int]:
            consumer.poll(0.1)
            return sorted(each.partition for each in consumer.assignment())

        try:
            until(lambda: assigned() == [0, 1], "two slots")
        finally:
            consumer.close()
        assert errors == []


def test_a_base_made_anew_begins_a_new_view(raw: Raw, broker: Raw, fresh: Fresh) -> None:
    """Another topic id, and the offsets committed on the old one are gone; without a base: 3."""
    base = raw.create_topic(fresh("base"))
    view, group = f"__view.r2.{base.name}", fresh("group")
    before = create(raw, view)[view]
    _commit(raw, group, view, 500)
    raw.delete_topic(base)
    lost = metadata(raw, view)[view]
    assert (lost.error_code, list(lost.partitions)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    broker.create_topic(base.name, 2)
    after = until(lambda: (entry := metadata(raw, view)[view]) and not entry.error_code and entry, "the new view")
    assert bytes(after.topic_id) != bytes(before.topic_id)
    assert len(after.partitions) == 4
    until(lambda: committed(raw, group, view, [0]) == [-1], "the old offsets to be gone")


def _commit(raw: Raw, group: str, topic: str, *offsets: int) -> None:
    parts = [
        {"partition_index": n, "committed_offset": offset, "committed_metadata": ""} for n, offset in enumerate(offsets)
    ]

    def done() -> bool:
        response = raw.send_request(
            "OffsetCommit", 8, on=raw.on_coordinator(group), group_id=group, generation_id_or_member_epoch=-1,
            member_id="", topics=[{"name": topic, "partitions": parts}],
        )  # fmt: skip
        return not any(part.error_code for part in response.topics[0].partitions)

    until(done, f"offsets of {group} to be committed")


def test_what_a_view_belongs_to_outlives_the_proxy(running: Running, kafka_43: Cluster, fresh: Fresh) -> None:
    """A base that is created again while no proxy runs is noticed by the next one."""
    with Raw(kafka_43.bootstrap) as broker:
        base = broker.create_topic(fresh("base"))
        view = f"__view.r2.{base.name}"
        first = running.front(kafka_43.bootstrap, VIEWS)
        with Raw(first.bootstrap) as raw:
            before = create(raw, view)[view]
        first.stop()
        broker.delete_topic(base)
        broker.create_topic(base.name)
        second = running.front(kafka_43.bootstrap, VIEWS)
        with Raw(second.bootstrap) as raw:
            after = metadata(raw, view)[view]
        assert (after.error_code, bytes(after.topic_id) != bytes(before.topic_id)) == (0, True)
        second.stop()


def run(cluster: Cluster, *arguments: str) -> tuple[int, str]:
    """`kafka-share-proxy views ...`; exit status and what it printed."""
    result = CliRunner().invoke(cli.app, ["views", *arguments, "--upstream", cluster.bootstrap])
    return result.exit_code, result.output


def test_commands_make_list_grow_and_delete_views(kafka_39: Cluster, fresh: Fresh) -> None:
    """At the brokers, without a proxy."""
    with Raw(kafka_39.bootstrap) as broker:
        base = broker.create_topic(fresh("base"))
        view = f"__view.r2.{base.name}"
        assert run(kafka_39, "create", view) == (0, f"{view}: 2 partitions, 2 for each of {base.name}\n")
        base = broker.add_partitions(base, 2)
        # A proxy of another test may have made the view grow already.
        assert _listed(kafka_39, view).endswith(("its base has grown: views grow", "ready"))
        assert run(kafka_39, "grow", view) == (0, f"{view}: 4 partitions, 2 for each of {base.name}\n")
        assert _listed(kafka_39, view).split() == [view, "4", "2", "ready"]
        status, text = run(kafka_39, "create", view, "__view.r2.nothing")
        assert status == 1
        assert "__view.r2.nothing: UNKNOWN_TOPIC_OR_PARTITION (3)" in text
        assert run(kafka_39, "delete", view) == (0, f"{view}: deleted\n")
        until(lambda: broker.topic(view) is None, "the view to be gone")


def _listed(cluster: Cluster, view: str) -> str:
    status, text = run(cluster, "list")
    assert status == 0
    return next(line for line in text.splitlines() if line.startswith(view)).strip()


def test_a_plan_is_stored_served_and_never_changed(
    views_39: Front, kafka_39: Cluster, tmp_path: Path, fresh: Fresh
) -> None:
    """A running proxy serves it immediately; groups move to it from another view, at least once."""
    file = tmp_path / "plan.json"
    ranges = [[0, 1 << 28], [1 << 28, 1 << 31], [1 << 31, 1 << 32]]
    file.write_text(json.dumps({"version": 1, "topic": "t", "hash": "murmur2-32", "n": 3, "ranges": ranges}))
    name, group = fresh("hot"), fresh("group")
    with Raw(views_39.bootstrap) as raw:
        base = raw.create_topic(fresh("base"))
        old, new = f"__view.r2.{base.name}", f"__view.p{name}.{base.name}"
        produce(raw, base, 0, 100)
        assert metadata(raw, new)[new].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert run(kafka_39, "plan", str(file), "--name", name)[0] == 0
        assert len(metadata(raw, new)[new].partitions) == 3
        file.write_text(json.dumps({"version": 1, "ranges": [[0, 9], [9, 1 << 32]]}))
        assert run(kafka_39, "plan", str(file), "--name", name)[0] == 1
        file.write_text(json.dumps({"version": 1, "ranges": [[0, 9], [10, 1 << 32]]}))
        status, text = run(kafka_39, "plan", str(file), "--name", fresh("gap"))
        assert (status, "hashes 9 to 9" in text) == (2, True)
        create(raw, old)
        _commit(raw, group, old, 60, 40)
        result = run(kafka_39, "migrate", group, "--from", old, "--to", new, "--dry-run")
        assert (result[0], committed(raw, group, new, range(3))) == (0, [-1] * 3)
        assert run(kafka_39, "migrate", group, "--from", old, "--to", new)[0] == 0
        assert committed(raw, group, new, range(3)) == [40, 40, 40]
        status, text = run(kafka_39, "migrate", group, "--from", old, "--to", new)
        assert (status, "already" in text) == (1, True)
        assert {value for value, _ in _read(views_39, group, new, 3, 60)} >= {str(n) for n in range(40, 100)}


def _read(front: Front, group: str, view: str, partitions: int, count: int) -> list[tuple[str, int]]:
    consumer = Consumer({"bootstrap.servers": front.bootstrap, "group.id": group, "log_level": 2})
    offsets = consumer.committed([TopicPartition(view, partition) for partition in range(partitions)], 10)
    consumer.assign(offsets)
    got: list[tuple[str, int]] = []

    def done() -> bool:
        for message in consumer.consume(100, 0.2):
            if message.error():
                raise KafkaException(message.error())
            got.append((message.value().decode(), message.partition()))
        return len(got) >= count

    until(done, f"{count} records of {view}")
    consumer.close()
    return got


def test_a_live_group_is_not_moved(views_43: Front, kafka_43: Cluster, fresh: Fresh) -> None:
    """Its members would continue where they are."""
    with Raw(views_43.bootstrap) as raw:
        base = raw.create_topic(fresh("base"))
        old, new, group = f"__view.r2.{base.name}", f"__view.r4.{base.name}", fresh("group")
        create(raw, old)
        for protocol in ("classic", "consumer"):
            _commit(raw, f"{group}-{protocol}", old, 1, 1)
            consumer = Consumer(
                {"bootstrap.servers": views_43.bootstrap, "group.id": f"{group}-{protocol}", "group.protocol": protocol}
            )
            consumer.subscribe([old])
            try:
                until(lambda consumer=consumer: consumer.poll(0.1) or consumer.assignment(), "an assignment")
                status, text = run(kafka_43, "migrate", f"{group}-{protocol}", "--from", old, "--to", new)
                assert (status, "has members" in text) == (1, True), text
            finally:
                consumer.close()


def test_share_groups_get_an_error_for_views(views_43: Front, fresh: Fresh) -> None:
    """Brokers with share groups would let them form and deliver nothing."""
    with Raw(views_43.bootstrap) as raw:
        base: Topic = raw.create_topic(fresh("base"))
        view, group = f"__view.r2.{base.name}", fresh("group")
        metadata(raw, view)
        response = raw.send_request(
            "ShareGroupHeartbeat", 1, on=raw.on_coordinator(group), group_id=group, member_id="A" * 22, member_epoch=0,
            rack_id=None, subscribed_topic_names=[view],
        )  # fmt: skip
        assert (response.error_code, "views" in response.error_message) == (ErrorCode.INVALID_REQUEST, True)
