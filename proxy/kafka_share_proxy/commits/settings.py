"""Settings `commits.*`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from kafka_share_proxy.feature.settings import Kept, Path, Section, kept_in_fleet


class Commits(Section):
    """Individual commits: consumers finish records in any order, and say which in the metadata of their commits."""

    serve: bool = True
    """Off: metadata like `ic/1;43-45` is metadata like any other."""
    groups: str = "*"
    """A group id, or a pattern with * and ?. The metadata of other groups is not inspected."""
    ranges_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Ranges that one group may have of one partition. A commit that would make more is refused (12)."""
    state: Kept = "topic"
    """topic: ranges are kept in a compacted topic of the cluster. memory: gone when the proxy ends."""

    def mistakes(self, *, is_fleet: bool) -> Iterator[tuple[Path, str]]:
        if is_fleet and self.serve:
            yield from kept_in_fleet(self.state)
