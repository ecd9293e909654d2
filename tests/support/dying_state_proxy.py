"""A `state_proxy` that kills itself (-9) at a step of a transaction: FAULT PORT serve --config FILE.

A fault is a request of transactions and a moment of it, "EndTxn sent" for example: see FAULTS. "none" kills nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kafka_share_proxy.brokers.channel import Channel
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.support import state_proxy
from tests.support.small_state import TEST_STATE

STEPS = ("AddPartitionsToTxn", "outside Produce", "state Produce", "EndTxn")
MOMENTS = ("before", "sent", "processed")
"""Before the request is sent; when it was sent; when its response has arrived, before it is processed."""
FAULTS = tuple(f"{step} {moment}" for step in STEPS for moment in MOMENTS)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def step_of(key: int, message: Any) -> str:
    """Return the step of a transaction, or nothing for other requests."""
    if key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return STEPS[0]
    if key == ApiKey.END_TXN:
        return STEPS[3]
    if key == ApiKey.PRODUCE and message.transactional_id:
        (topic,) = message.topic_data
        return STEPS[2] if topic.name == TEST_STATE.topic else STEPS[1]
    return ""


def install(fault: str) -> None:
    """Have the process die there."""
    plain = Channel.send_request

    def send_request(self: Channel, key: int, version: int, message: Any, done: Callable[[Any], None]) -> None:
        step = step_of(key, message)
        if fault == f"{step} before":
            die()
        deadly = fault == f"{step} processed"
        plain(self, key, version, message, (lambda _response: die()) if deadly else done)
        if fault == f"{step} sent":
            die()

    setattr(Channel, "send_request", send_request)  # noqa: B010 - a method of the product


def main(fault: str, *arguments: str) -> int:
    if fault != "none":
        install(fault)
    return state_proxy.main(*arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
