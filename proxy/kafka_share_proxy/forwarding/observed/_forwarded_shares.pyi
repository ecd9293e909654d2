from collections.abc import Callable
from typing import Any

from kafka_share_proxy.forwarding.dispatch.routes import Amend, Context, Rewrite, Route

VERSION: int

class Shares:
    def __init__(
        self,
        offer: Callable[..., None],
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        walk: Callable[[Any, int], tuple[bytes, int]],
        look: Callable[..., float],
        add: Callable[..., None],
        place: Callable[[bytes, int], Any],
        outcomes: tuple[str, ...],
        brokers: str,
        most: int,
        most_of_one: int,
        /,
    ) -> None: ...
    def __len__(self) -> int: ...
    def flush(self) -> None: ...

class Asked:
    key: int
    version: int
    rewrite: Rewrite

    def __call__(self, frame: memoryview, context: Context, /) -> bytes | None: ...

class Watch:
    def __init__(
        self, shares: Shares, route: Route, rewrite: Rewrite | None, amend: Amend | None, key: int, version: int, /
    ) -> None: ...
    def __call__(self, frame: memoryview, /) -> Asked | Route: ...
