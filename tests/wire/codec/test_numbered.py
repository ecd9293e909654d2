"""Messages after a number of two bytes, as in the records of the proxy's own topics."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import RemoteProtocolError

VALUE = messages.CommittingGroupValue(time_ms=7)
KEY = messages.CommittingGroupKey(group_id="orders")


def test_a_value_begins_with_its_version() -> None:
    data = numbered.encode(VALUE, 0)
    assert (data[:2], numbered.number_in(data)) == (b"\0\0", 0)
    assert numbered.decode(messages.CommittingGroupValue, data, (0,)).time_ms == 7


def test_a_key_begins_with_the_type_of_its_record() -> None:
    data = numbered.encode(KEY, 0, 3)
    assert numbered.number_in(data) == 3
    assert numbered.decode_body(messages.CommittingGroupKey, data, 0).group_id == "orders"


@pytest.mark.parametrize(("data", "version"), [(b"\0\1", 1), (b"\xff\xff", -1), (b"\0", 0), (b"", 0)])
def test_an_unknown_version_is_refused(data: bytes, version: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"CommittingGroupValue of version {version} is not known here"):
        numbered.decode(messages.CommittingGroupValue, data, (0,))


def test_a_value_that_is_cut_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        numbered.decode(messages.CommittingGroupValue, numbered.encode(VALUE, 0)[:-1], (0,))
