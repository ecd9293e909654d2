"""Work in steps, all of them in one go."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from kafka_share_proxy.loop.slices import Work

T = TypeVar("T")


def result_of(steps: Generator[None, None, T]) -> T:
    """Run the steps to their result."""
    try:
        Work().drive(steps).send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")
