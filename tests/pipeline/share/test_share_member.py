"""A blocking member of a share group, at the proxy and at a broker of 4.3.0 (pipeline/README.md rules 43 to 46)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import ReadRefused
from kafka_share_proxy.pipeline.share.share_job import lag_of_group
from kafka_share_proxy.pipeline.share.share_locks import AcquiredOffsets, count_offsets
from kafka_share_proxy.pipeline.share.share_member import ShareMember
from kafka_share_proxy.pipeline.share.share_membership import NoShareGroups
from kafka_share_proxy.pipeline.share.share_options import ShareSourceOptions, read_share_options

from tests.support.raw import Raw, Topic, until

pytestmark = pytest.mark.broker
Fresh = Callable[[str], str]


@pytest.fixture(params=["proxy_39_quick", "kafka_43_quick"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Share groups served by the proxy in front of 3.9.1, and by a broker of 4.3.0; locks may be of a second."""
    return str(request.getfixturevalue(request.param).bootstrap)


@pytest.fixture
def raw(bootstrap: str) -> Iterator[Raw]:
    with Raw(bootstrap) as opened:
        yield opened


@pytest.fixture
def topic(raw: Raw, fresh: Fresh) -> Topic:
    """Two partitions with 50 records each, in batches of 10."""
    created_topic = raw.create_topic(fresh("orders"), 2)
    for partition in (0, 1):
        raw.produce(created_topic, *[10] * 5, partition=partition)
    return created_topic


def options_of(raw: Raw, topic: Topic, group: str, **more: str) -> ShareSourceOptions:
    raw.configure_group(group, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"})
    address = raw.bootstrap[0]
    options = {"bootstrap": f"{address.host}:{address.port}", "topic": topic.name, "group": group, "timeoutMs": "30000"}
    return read_share_options(options | more)


def all_of(member: ShareMember, offsets_max: int = 1_000, count: int = 100) -> list[AcquiredOffsets]:
    acquired: list[AcquiredOffsets] = []

    def fetched() -> bool:
        acquired.extend(member.fetch(offsets_max, 0.2).acquired)
        return count_offsets(each.span for each in acquired) >= count

    until(fetched, f"{count} offsets")
    return acquired


def test_offsets_are_held_beyond_their_lock_and_settled_once(raw: Raw, topic: Topic, fresh: Fresh) -> None:
    notes: list[str] = []
    options = options_of(raw, topic, fresh("group"))
    with ShareMember(options, notes.append) as member:
        acquired = all_of(member)
        with ShareMember(options, notes.append) as other:
            time.sleep(1.5)  # a lock and a half
            assert member.renewals >= 3
            assert other.fetch(100, 0.0).acquired == []
        assert member.accept(acquired) == []
        assert lag_of_group(options) == 0
    with ShareMember(options, notes.append) as other:
        assert other.fetch(100, 0.2).acquired == []
    assert (member.lost, notes) == (0, [])


def test_released_offsets_are_delivered_again(raw: Raw, topic: Topic, fresh: Fresh) -> None:
    options = options_of(raw, topic, fresh("group"))
    with ShareMember(options, print) as member:
        all_of(member)
    with ShareMember(options, print) as member:
        again = all_of(member)
        assert {each.delivery_count for each in again} == {2}


def test_one_range_that_is_not_held_leaves_the_rest_acknowledged(raw: Raw, topic: Topic, fresh: Fresh) -> None:
    """A server refuses the whole partition for one range; the others are acknowledged again without it."""
    options = options_of(raw, topic, fresh("group"))
    with ShareMember(options, print) as member:
        acquired = all_of(member, offsets_max=10)
        freed = next(each for each in acquired if each.partition.partition == 0 and each.span.start == 20)
        spans = {freed.partition: [freed.span]}
        assert freed.session.acknowledge(AcknowledgeType.RELEASE, spans) == {}
        freed.session._held[freed.partition] = [freed.span, *freed.session._held[freed.partition]]
        assert member.accept(acquired) == [freed]
        again = member.fetch(100, 0.2).acquired
        assert [(each.partition.partition, each.span) for each in again] == [(0, OffsetSpan(20, 30))]


def test_a_connection_that_breaks_gives_its_locks_back(raw: Raw, topic: Topic, fresh: Fresh) -> None:
    notes: list[str] = []
    options = options_of(raw, topic, fresh("group"))
    with ShareMember(options, notes.append) as member:
        acquired = all_of(member)
        connection: Any = acquired[0].session._connection
        connection._socket.shutdown(2)
        until(lambda: acquired[0].session.is_over, "the renewal to notice")
        assert member.accept(acquired) == acquired
        again = all_of(member)
        assert member.lost == 100
        assert member.accept(again) == []
    assert len(notes) == 1
    assert "with 100 locks" in notes[0]


def test_a_missing_topic_is_reported(raw: Raw, topic: Topic, fresh: Fresh) -> None:
    options = options_of(raw, Topic(fresh("none"), b"", {}), fresh("group"), timeoutMs="1000")
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PARTITION"), ShareMember(options, print):
        pass


def test_a_group_of_another_type_is_refused(raw: Raw, topic: Topic, fresh: Fresh) -> None:
    group = fresh("group")
    address = raw.bootstrap[0]
    consumer = Consumer({"bootstrap.servers": f"{address.host}:{address.port}", "group.id": group})
    try:
        consumer.subscribe([topic.name])
        until(lambda: consumer.poll(0.2) is None and consumer.assignment(), "an assignment")
        with pytest.raises(ReadRefused, match="GROUP_ID_NOT_FOUND"), ShareMember(options_of(raw, topic, group), print):
            pass
    finally:
        consumer.close()


def test_brokers_without_share_groups_are_refused(kafka_39: Any, fresh: Fresh) -> None:
    with Raw(kafka_39.bootstrap) as raw:
        created_topic = raw.create_topic(fresh("orders"))
        options = {"bootstrap": kafka_39.bootstrap, "topic": created_topic.name, "group": "g"}
        with (
            pytest.raises(NoShareGroups, match="name a kafka-share-proxy as bootstrap"),
            ShareMember(read_share_options(options), print),
        ):
            pass
