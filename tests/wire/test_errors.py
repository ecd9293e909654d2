"""Error codes as numbers on the wire, those of newer brokers included."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from proxy.wire import registry
from proxy.wire.errors import ErrorCode

NEWER = 30_137
"""No release of Kafka has this code."""


@pytest.mark.parametrize("number", [NEWER, -2, 32_767, -32_768])
def test_a_code_that_is_not_listed_keeps_its_number(number: int) -> None:
    code = ErrorCode(number)
    assert (int(code), code.name, code == number) == (number, f"UNKNOWN_{number}", True)
    assert code == ErrorCode(number)
    assert hash(code) == hash(number)
    assert code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
    assert pickle.loads(pickle.dumps(code)) == copy.copy(code) == number


def test_it_is_not_kept() -> None:
    """Answers cannot make the class grow."""
    before = len(ErrorCode._value2member_map_)
    assert ErrorCode(NEWER) == NEWER
    assert len(ErrorCode._value2member_map_) == before == len(ErrorCode)


def test_it_is_encoded_as_it_came() -> None:
    codec = registry.response(12, 4)
    answer = codec.decode(memoryview(codec.encode(registry.message("HeartbeatResponse")(error_code=ErrorCode(NEWER)))))
    assert answer.error_code == NEWER


@pytest.mark.parametrize("value", [1 << 15, -(1 << 15) - 1, "29", None, 1.5])
def test_what_is_no_int16_is_no_code(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid ErrorCode"):
        ErrorCode(value)
