"""Records of the state topic: keys and values there and back, and a coordinator filled from them."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.partition_log import OwnerEpoch
from kafka_share_proxy.sharegroups.apis.group_configs import stored_value
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot
from kafka_share_proxy.sharegroups.state import state_records
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, StateKey
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.records import Record

ID = bytes(range(16))
KEYS = [StateKey("partition", "gruppe-ü", ID, 3), StateKey("group", "g"), StateKey("settings", "g")]


@pytest.mark.parametrize("key", KEYS)
def test_key_there_and_back(key):
    stored = state_records.encode_key(key)
    assert state_records.decode_key(stored) == key
    assert SHARE_STATE.owner_epoch_of(stored) is None


def test_bytes_are_those_that_were_chosen():
    """The format stays: a later release reads what this one wrote."""
    assert state_records.encode_key(KEYS[1]) == b"\0\1" + b"\0\1g"
    assert state_records.encode_key(KEYS[2]) == b"\0\2" + b"\0\1g"
    key = state_records.encode_key(StateKey("partition", "g", ID, 3))
    assert key == b"\0\0" + b"\0\1g" + ID + b"\0\0\0\3"
    assert state_records.group_value(5) == b"\0\0" + b"\0\0\0\5" + b"\0"
    assert SHARE_STATE.keep_alive() == Record(b"\0\4", None)


def test_state_partition_is_that_of_a_java_producer():
    assert {name: state_records.state_partition(name) for name in ("foobar", "21", "abc")} == {
        "foobar": (-790332482 & 0x7FFFFFFF) % 50,
        "21": (-973932308 & 0x7FFFFFFF) % 50,
        "abc": 479470107 % 50,
    }


def test_takeover_record_contains_its_owner_epoch():
    record = SHARE_STATE.takeover("proxy:9092", 1234, 7, 3)
    assert record.key == b"\0\3" + (7).to_bytes(8, "big") + b"\0\3"
    assert SHARE_STATE.owner_epoch_of(record.key) == OwnerEpoch(7, 3)
    with pytest.raises(RemoteProtocolError):
        state_records.decode_key(record.key)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\5", b"\xff\xff", b"\0\7abc"])
def test_unknown_record_types_are_refused(key):
    """A newer proxy wrote what this one would lose."""
    with pytest.raises(RemoteProtocolError):
        SHARE_STATE.owner_epoch_of(key)


def test_coordinator_holds_what_was_stored():
    coordinator = ShareCoordinator(BrokerShareLimits())
    snapshot = ShareSnapshot(10, 2, 3, ((12, 14, 2, 1), (20, 29, 0, 4)))
    values = {
        state_records.encode_key(StateKey("group", "g")): state_records.group_value(9),
        state_records.encode_key(StateKey("settings", "s")): stored_value({"share.delivery.count.limit": "7"}),
        state_records.encode_key(StateKey("partition", "g", ID, 3)): snapshot.encode(),
        SHARE_STATE.keep_alive().key: b"",
    }
    state_records.load(coordinator, values.items())
    assert coordinator.group("g").epoch == 9
    assert coordinator.settings("s").delivery_count_limit == 7
    assert coordinator.resting == 1
    assert coordinator.keys_of("g") == (ShareKey("g", ID, 3),)
    share = coordinator.share(ShareKey("g", ID, 3))
    assert (share.partition.start_offset, share.partition.state_epoch) == (10, 2)
    assert share.partition.snapshot() == snapshot
    assert coordinator.resting == 0
    assert coordinator.share(ShareKey("g", ID, 3)) is share


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEYS[0], b"\0\1" + bytes(16)),
        (KEYS[1], b"\0\1" + bytes(5)),
        (KEYS[2], b"\0\1\1\0"),
        (KEYS[0], b"\0"),
        (KEYS[1], b""),
    ],
)
def test_unknown_versions_are_refused(key, value):
    coordinator = ShareCoordinator(BrokerShareLimits())
    with pytest.raises(RemoteProtocolError):
        state_records.load(coordinator, [(state_records.encode_key(key), value)])
