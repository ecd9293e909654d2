"""Responses of several APIs while their state is not available."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.apis import refusals
from kafka_share_proxy.wire.errors import ErrorCode


def reported(refusal: Any, key: int, code: ErrorCode, reason: str) -> tuple[str, int, str | None]:
    connection: Any = None
    task: Task[Any] = Task(refusal(Call(key, 1, 1, None, None, connection), code, reason), lambda _: None)
    task.start()
    response = task.value
    return type(response).__name__, response.error_code, response.error_message


@pytest.mark.parametrize(("key", "name"), [(76, "ShareGroupHeartbeat"), (92, "DeleteShareGroupOffsets")])
def test_one_code_is_for_the_whole_request(key: int, name: str) -> None:
    """The requested API has it; a missing message is null, not empty."""
    assert reported(refusals.whole, key, ErrorCode.NOT_COORDINATOR, "moved") == (f"{name}Response", 16, "moved")
    assert reported(refusals.whole, key, ErrorCode.NOT_COORDINATOR, "") == (f"{name}Response", 16, None)


def test_a_member_opens_its_session_anew_for_every_reason() -> None:
    """SHARE_SESSION_NOT_FOUND is what makes every client do so."""
    assert reported(refusals.no_session, 78, ErrorCode.NOT_COORDINATOR, "moved") == ("ShareFetchResponse", 122, "moved")
