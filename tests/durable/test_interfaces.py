"""The refusal of a journal, and the key of share state about a group."""

from __future__ import annotations

from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID


def test_refusal_has_its_code_and_a_message():
    assert JournalRefused(ErrorCode.NOT_COORDINATOR).code == ErrorCode.NOT_COORDINATOR
    assert str(JournalRefused(ErrorCode.NOT_COORDINATOR)) == "NOT_COORDINATOR"
    assert str(JournalRefused(ErrorCode.NOT_COORDINATOR, "moved to 3")) == "moved to 3"


def test_key_of_group_state_has_no_topic_partition():
    assert StateKey("group", "g") == ("group", "g", ZERO_UUID, -1)
