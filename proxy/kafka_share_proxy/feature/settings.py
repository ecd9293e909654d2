"""Settings: the kinds of values and sections that every feature may use for its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Kept = Literal["topic", "memory"]
"""Place of a state: a compacted topic of the cluster, or the memory of the proxy."""


class Section(BaseModel):
    """Settings never change, and a key that does not exist is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")
