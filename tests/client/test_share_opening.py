"""Opening a share consumer: mistakes are reported before anything is sent, and at the end the group is left."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.client.notes import COORDINATOR_STATE, ConsumerNote
from kafka_share_proxy.client.share_notes import RECORDS_ACKNOWLEDGED, SHARE_MEMBER_STATE
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.share_cluster import share_cluster
from tests.consumer.share_world import ShareKafka

A0 = TopicPartition("a", 0)
Clock = trio.testing.MockClock


@pytest.mark.parametrize(("options", "text"), [
    ({"group": ""}, "group is empty"),
    ({"acknowledgement_mode": "manual"}, "one of implicit, explicit"),
    ({"acknowledge_mode": "explicit"}, "did you mean 'acknowledgement_mode'"),
    ({"auto_offset_reset": "earliest"}, "no option is called 'auto_offset_reset'"),
    ({"sasl": ("GSSAPI", "u", "p")}, "sasl mechanism 'GSSAPI'"),
    ({"bootstrap": "a/b"}, "write host:port"),
])  # fmt: skip
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        open_share_consumer(**{"bootstrap": "kafka:9092", "group": "g", "topics": ["t"], **options})


def test_topics_are_names() -> None:
    with pytest.raises(ValueError, match="write a list of names"):
        open_share_consumer("kafka:9092", group="g", topics="jobs")


async def test_at_the_end_sessions_are_closed_and_the_group_is_left(autojump_clock: Clock) -> None:
    kafka = ShareKafka(a=1)
    kafka.produce(A0, 3)
    notes: list[ConsumerNote] = []
    async with share_cluster(kafka) as brokers:
        async with brokers.consumer(observe=notes.append) as consumer:
            records = await consumer.poll()
            consumer.acknowledge(records[0])
        assert kafka.share.sessions == {}
        assert kafka.share.members == {}
        assert kafka.share.shares[A0].settled == {0}
        assert kafka.share.shares[A0].locks == {}
        final = [request for name, request in brokers.brokers.nodes[1].requests if name == "ShareAcknowledge"]
        assert [request.share_session_epoch for request in final] == [-1]
    assert {COORDINATOR_STATE, SHARE_MEMBER_STATE, RECORDS_ACKNOWLEDGED} == {note.event for note in notes}
    states = [note.facts["after"] for note in notes if note.event == SHARE_MEMBER_STATE]
    assert states == ["joining", "stable", "leaving", "outside"]


async def test_a_cancelled_block_leaves_as_well(autojump_clock: Clock) -> None:
    kafka = ShareKafka(a=1)
    kafka.produce(A0, 3)
    async with share_cluster(kafka) as brokers:
        with trio.move_on_after(5):
            async with brokers.consumer() as consumer:
                records = await consumer.poll()
                consumer.acknowledge(records[1])
                await trio.sleep_forever()
        assert kafka.share.shares[A0].settled == {1}
        assert kafka.share.members == {}


async def test_an_exception_of_the_block_is_raised_unchanged(autojump_clock: Clock) -> None:
    async with share_cluster(ShareKafka(a=1)) as brokers:
        with pytest.raises(ZeroDivisionError):
            async with brokers.consumer():
                raise ZeroDivisionError
