"""The demonstration's share consumer when a broker refuses."""

from __future__ import annotations

import pytest
from localkafka.share_client import ShareError


@pytest.mark.parametrize(("code", "name"), [(121, "INVALID_RECORD_STATE"), (9999, "unknown")])
def test_a_refusal_is_told_by_its_code_and_name(code: int, name: str) -> None:
    """On every Python that is supported, and for codes that nobody knows."""
    error = ShareError("acknowledgement", code, "because")
    assert str(error) == f"acknowledgement: error {code} ({name}), because"
    assert error.code == code
