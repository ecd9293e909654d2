"""The generated message classes."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions import messages, registry

Request = registry.message("ShareFetchRequest")


def test_one_class_has_the_fields_of_all_versions() -> None:
    """Also those that no valid version has any longer; nested structures are attributes by their schema name."""
    assert {"group_id", "batch_size", "share_acquire_mode", "is_renew_ack"} <= set(Request.FIELDS)
    batch = Request.AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=[1])
    assert batch.last_offset == 2
    assert Request.AcknowledgementBatch.__qualname__ == "ShareFetchRequest.AcknowledgementBatch"


def test_common_structures_are_attributes_too() -> None:
    """commonStructs are shared by several fields of one message."""
    assert registry.message("AddPartitionsToTxnRequest").AddPartitionsToTxnTopic().partitions == []


def test_defaults_are_those_of_the_definition() -> None:
    """Nothing has to be set for a valid message; what is mutable is not shared."""
    one, other = Request(), Request()
    assert (one.group_id, one.max_bytes, one.topics, one.unknown_tags) == (None, 0x7FFFFFFF, [], ())
    assert one == other
    one.topics.append(Request.FetchTopic())
    assert other.topics == []


def test_structures_compare_by_content() -> None:
    """Tags count; another class is another thing."""
    assert Request(unknown_tags=((1, b""),)) != Request()
    assert Request(max_wait_ms=1) != Request(max_wait_ms=2)
    assert Request() != registry.message("ShareAcknowledgeRequest")()


def test_unknown_fields_are_refused() -> None:
    """Slots and keyword arguments keep typing errors from being sent as defaults."""
    with pytest.raises(TypeError):
        Request(groupid="g")
    with pytest.raises(AttributeError):
        Request().groupid = "g"


def test_there_is_one_class_per_message() -> None:
    """A codec takes only its own class, so all who ask must get the same."""
    assert messages.message_class("ShareFetchRequest") is Request


def test_display_names_what_is_set() -> None:
    """Long bytes are not printed: they may be records of users."""
    shown = repr(registry.message("FetchResponse").PartitionData(records=b"x" * 100))
    assert "<100 bytes>" in shown
    assert "xxx" not in shown
