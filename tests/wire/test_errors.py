"""Error codes as numbers on the wire, those of newer brokers included."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

NEWER = 30_137
"""No release of Kafka has this code."""


@pytest.mark.parametrize("number", [NEWER, 999, -2, 32_767, -32_768, 1 << 31, -(1 << 63)])
def test_a_code_that_is_not_listed_keeps_its_number(number: int) -> None:
    code = ErrorCode.of(number)
    assert (int(code), code.name, code.value, code == number) == (number, f"UNKNOWN_CODE_{number}", number, True)
    assert code == ErrorCode.of(number)
    assert hash(code) == hash(number)
    assert code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
    assert f"{code}" == str(number)
    assert f"UNKNOWN_CODE_{number}" in repr(code)


def test_a_code_that_is_listed_is_itself() -> None:
    assert all(ErrorCode.of(int(code)) is code for code in ErrorCode)
    assert ErrorCode.of(-1) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_unlisted_code_is_not_cached() -> None:
    """Responses cannot make the class grow."""
    before = len(ErrorCode._value2member_map_)
    assert ErrorCode.of(NEWER) == NEWER
    assert len(ErrorCode._value2member_map_) == before == len(ErrorCode)


def test_unknown_codes_are_encoded_unchanged() -> None:
    codec = registry.response(12, 4)
    code = ErrorCode.of(NEWER)
    response = codec.decode(memoryview(codec.encode(registry.message("HeartbeatResponse")(error_code=code))))
    assert response.error_code == NEWER
