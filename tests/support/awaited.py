"""Promises that are awaited, in either kernel."""

from __future__ import annotations

import gc

from kafka_share_proxy.loop.promise import Promise


def is_awaited(promise: Promise[None]) -> bool:
    """True if an unsettled promise would call anything: then it holds callbacks and their owners."""
    return any(each for each in gc.get_referents(promise) if each is not type(promise))
