"""Description of a state, and the records that every state has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.durable.partition_log import OwnerEpoch
from kafka_share_proxy.wire.errors import RemoteProtocolError

from tests.support.small_state import KEEP_ALIVE, TAKEOVER, TEST_STATE, TEXT, encode_key


def test_takeover_record_contains_its_owner_epoch() -> None:
    record = TEST_STATE.takeover("proxy:9092", 1234, 7, 3)
    assert record.key == TAKEOVER.to_bytes(2, "big") + (7).to_bytes(8, "big") + b"\0\3"
    assert record.timestamp == 1234
    assert TEST_STATE.owner_epoch_of(record.key) == OwnerEpoch(7, 3)


def test_other_records_begin_no_owner_epoch() -> None:
    keep_alive = TEST_STATE.keep_alive()
    assert (keep_alive.key, keep_alive.value) == (KEEP_ALIVE.to_bytes(2, "big"), None)
    assert TEST_STATE.is_keep_alive(keep_alive.key or b"")
    assert not TEST_STATE.is_keep_alive(encode_key("a"))
    assert TEST_STATE.owner_epoch_of(keep_alive.key or b"") is None
    assert TEST_STATE.owner_epoch_of(encode_key("a")) is None


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\3", b"\xff\xff", b"\0\7abc"])
def test_unknown_record_types_are_refused(key: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="is not known here"):
        TEST_STATE.owner_epoch_of(key)


@pytest.mark.parametrize(
    "wrong",
    [{"takeover_type": TEXT}, {"keep_alive_type": TAKEOVER}, {"partitions": 0}, {"partitions": PARTITIONS + 1}],
)
def test_description_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="test state"):
        replace(TEST_STATE, **wrong)  # type: ignore[arg-type]


def test_names_are_those_of_the_state() -> None:
    assert (TEST_STATE.event("loaded"), TEST_STATE.served_event("off")) == ("test-state-loaded", "texts-off")
    assert TEST_STATE.transactional_id(3) == "__proxy-test-3"
    assert (list(TEST_STATE.all), TEST_STATE.configs["cleanup.policy"]) == (list(range(8)), "compact")
    assert replace(TEST_STATE, message_bytes=5).configs["max.message.bytes"] == "5"


def test_events_of_a_state_have_levels() -> None:
    levels = TEST_STATE.levels
    assert levels[TEST_STATE.event("lost")] > levels[TEST_STATE.event("loaded")]
    assert levels[TEST_STATE.served_event("off")] > levels[TEST_STATE.served_event("on")]
