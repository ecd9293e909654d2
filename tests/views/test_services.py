"""Services for handlers of views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World


class Keeper:
    """Keeper that records its calls."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def ensure(self, connection: Any, topics: Iterable[str], _work: Work = AT_ONCE) -> dict[str, ErrorCode]:
        self.asked.append(list(topics))
        return {}

    async def resolve(self, connection: Any, topic_ids: Iterable[bytes], _work: Work = AT_ONCE) -> None:
        self.asked.append(list(topic_ids))


def test_making_and_finding_views_is_the_keepers() -> None:
    """The doors are where everybody looks for them."""
    keeper = Keeper()
    views = ViewServices(services=World().services, keeper=keeper)
    for coroutine in (views.ensure(None, ["v"]), views.resolve(None, [b"i" * 16])):  # type: ignore[arg-type]
        Task(coroutine, lambda _: None).start()
    assert keeper.asked == [["v"], [b"i" * 16]]
