"""Waiting for promises in Trio's tasks."""

from __future__ import annotations

from typing import Any

import trio

from kafka_share_proxy.loop.promise import Promise


async def until_settled(promise: Promise[Any]) -> None:
    """Wait in a Trio task. The caller reads the result, or ignores it."""
    if promise.done:
        return
    settled = trio.Event()
    promise.on_settled(settled.set)
    try:
        await settled.wait()
    finally:
        promise.forget(settled.set)
