"""Signed varints of records."""

from __future__ import annotations

import pytest
from construct import ZigZag
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_share_proxy.wire.codec.varints import read_varlong, varlong
from kafka_share_proxy.wire.errors import RemoteProtocolError


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_same_as_construct(value: int) -> None:
    """Any 64-bit number is written as construct writes it, and read back."""
    data = varlong(value)
    assert data == ZigZag.build(value)
    assert read_varlong(b"\xff" + data, 1) == (value, 1 + len(data))


def test_more_than_64_bits_are_refused() -> None:
    """Ten bytes are the most, and the tenth has one bit."""
    assert read_varlong(b"\xff" * 9 + b"\x01", 0)[0] == -(2**63)
    with pytest.raises(RemoteProtocolError):
        read_varlong(b"\xff" * 9 + b"\x02", 0)
    with pytest.raises(RemoteProtocolError):
        read_varlong(b"\xff" * 11, 0)
