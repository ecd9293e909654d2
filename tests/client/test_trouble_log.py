"""Log lines of troubles: which, at what time, and how many."""

from __future__ import annotations

import logging

import pytest
import trio
import trio.testing
from kafka_share_proxy.client.trouble_log import CHANGED_S, LINES_PER_MINUTE, REMINDER_S, TroubleLog
from kafka_share_proxy.consumer.events import PartitionsLost
from kafka_share_proxy.consumer.troubles import TROUBLES_MAX, TroubleKind, Troubles
from kafka_share_proxy.wire.values import TopicPartition

Clock = trio.testing.MockClock
CONNECTION, TOPIC = TroubleKind.CONNECTION, TroubleKind.TOPIC


def reporting() -> Troubles:
    troubles = Troubles()
    troubles.observer = TroubleLog("consumer of group 'g'").observer
    return troubles


async def test_a_broken_connection_is_logged_immediately_then_every_minute_and_at_its_end(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka_share_proxy")
    troubles = reporting()
    for _ in range(round(REMINDER_S) + 1):
        troubles.report(CONNECTION, 1, "cannot use node 1: refused", "Check it")
        await trio.sleep(1)
    troubles.end(CONNECTION, 1)
    assert [each.getMessage() for each in caplog.records] == [
        "consumer of group 'g': cannot use node 1: refused. Check it",
        "consumer of group 'g': cannot use node 1: refused (for 60 s, 60 attempts). Check it",
        "consumer of group 'g': over after 61 s: cannot use node 1: refused",
    ]
    assert {each.name for each in caplog.records} == {"kafka_share_proxy.connections"}


async def test_a_changed_reason_is_logged_sooner(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    troubles = reporting()
    troubles.report(CONNECTION, 1, "refused")
    troubles.report(CONNECTION, 1, "unreachable")
    await trio.sleep(CHANGED_S)
    troubles.report(CONNECTION, 1, "unreachable")
    assert len(caplog.records) == 2


async def test_an_unknown_topic_is_logged_if_it_stays_unknown(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    troubles = reporting()
    troubles.report(TOPIC, "new", "topic 'new' does not exist")
    await trio.sleep(0.5)
    troubles.end(TOPIC, "new")
    troubles.report(TOPIC, "absent", "topic 'absent' does not exist")
    await trio.sleep(1)
    troubles.report(TOPIC, "absent", "topic 'absent' does not exist")
    (line,) = caplog.records
    assert "'absent'" in line.getMessage()


async def test_the_lines_of_a_minute_are_bounded_and_what_was_left_out_is_counted(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    troubles = reporting()
    for node_id in range(TROUBLES_MAX + 10):
        troubles.report(CONNECTION, node_id, f"cannot use node {node_id}")
    assert len(caplog.records) == LINES_PER_MINUTE
    await trio.sleep(60)
    troubles.report(CONNECTION, "another", "cannot use another")
    left_out = TROUBLES_MAX + 10 - LINES_PER_MINUTE
    assert caplog.records[-1].getMessage().endswith(f"({left_out} other warnings were left out)")


async def test_as_many_troubles_as_are_kept_are_all_logged_when_they_last(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A repeated report needs no room: it must not drop the trouble that has waited longest for its line."""
    troubles = reporting()
    for _ in range(3):
        for number in range(TROUBLES_MAX):
            troubles.report(TOPIC, TopicPartition("t", number), f"partition t-{number} has no leader")
        await trio.sleep(1)
    assert len(caplog.records) == LINES_PER_MINUTE


async def test_lost_partitions_are_logged_with_what_to_check(caplog: pytest.LogCaptureFixture) -> None:
    lost = PartitionsLost(partitions=frozenset({TopicPartition("a", 0)}), reason="Heartbeat: FENCED_INSTANCE_ID")
    TroubleLog("consumer of group 'g'").event(lost)
    assert "lost a-0: Heartbeat: FENCED_INSTANCE_ID" in caplog.text
    assert "same group_instance_id" in caplog.text
    assert caplog.records[0].name == "kafka_share_proxy.group"
