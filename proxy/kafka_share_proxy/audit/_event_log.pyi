from collections.abc import Callable
from typing import Any

VERSION: int

class EventLog:
    seq: int
    dropped: int

    def __init__(
        self,
        most: int,
        wall_ms: Callable[[], int],
        layouts: dict[str, tuple[Any, ...]],
        json: Callable[[Any], str],
        /,
    ) -> None: ...
    def __len__(self) -> int: ...
    def offer(
        self, kind: str, place: tuple[Any, ...], group: str | None, member: str | None, values: tuple[Any, ...], /
    ) -> None: ...
    def topic_ids(self, cost_max: int, /) -> set[bytes]: ...
    def take(
        self, cost_max: int, proxy_id: str, cluster: str | None, topic_name: Callable[[bytes], str], /
    ) -> list[bytes]: ...
