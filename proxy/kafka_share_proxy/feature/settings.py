"""Settings: the kinds of values and sections that every feature may use for its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Kept = Literal["topic", "memory"]
"""Place of a state: a compacted topic of the cluster, or the memory of the proxy."""


Path = tuple[str, ...]
"""Path of a setting within its section."""


class Section(BaseModel):
    """Settings never change, and a key that does not exist is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    dotted_names: ClassVar[Mapping[str, Collection[str]]] = {}
    """Setting with values by name -> the names, which contain dots."""

    def mistakes(self, *, is_fleet: bool) -> Iterator[tuple[Path, str]]:  # noqa: ARG002 - for overriding
        """Yield settings that cannot work although each is valid alone, with what to do."""
        yield from ()

    def named_values(self, name: str) -> Mapping[str, tuple[Any, str]] | None:  # noqa: ARG002 - for overriding
        """Return default and help text of the values of a setting that another class declares."""
        return None


def kept_in_fleet(state: Kept) -> Iterator[tuple[Path, str]]:
    """Yield the mistake of a `state` that other proxies of a fleet cannot take over."""
    if state != "topic":
        yield (
            ("state",),
            "must be topic in a fleet or with several workers: what is in memory cannot be taken over",
        )
