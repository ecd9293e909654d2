"""Settings `commits.*`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from kafka_share_proxy.feature.settings import Path, Section, kept_in_fleet


class Commits(Section):
    """Individual commits: consumers finish records in any order, and say which in the metadata of their commits."""

    serve: bool = True
    """Off: metadata like `ic/1;43-45` is metadata like any other."""
    groups: str = "*"
    """A group id, or a pattern with * and ?. The metadata of other groups is not inspected."""
    ranges_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Ranges that one group may have of one partition. A commit that would make more is refused (12)."""
    state: Literal["topic", "metadata", "memory"] = "topic"
    """topic: ranges are kept in a compacted topic of the cluster. metadata: in the brokers' commit metadata as long as
    they fit, with one request less for a commit, else in the topic. memory: gone when the proxy ends."""

    def mistakes(self, *, is_fleet: bool) -> Iterator[tuple[Path, str]]:
        if is_fleet and self.serve and self.state != "metadata":
            yield from kept_in_fleet(self.state)
