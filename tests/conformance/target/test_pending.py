"""Responses that wait."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.pending import PendingResponse


async def test_the_first_response_counts() -> None:
    pending: PendingResponse[int] = PendingResponse()
    pending.set(1)
    pending.set(2)
    assert await pending.wait() == 1
