"""The least that an idle proxy can execute: the loop with Trio as its guest, in which one task wakes up each second.

    python -m tests.bench.idle_guest

Runs until it is terminated. `tests.bench.instructions --case idle` counts it in valgrind.
"""

from __future__ import annotations

import trio
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor

PERIOD_S = 1.0


async def wake_up() -> None:
    """One timer, as the heartbeat of the group of proxies has it."""
    while True:  # noqa: ASYNC110  # it waits for nothing else
        await trio.sleep(PERIOD_S)


if __name__ == "__main__":
    Reactor(new_pump).run(wake_up)
