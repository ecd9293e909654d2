"""A block and its background task: its results, and its end."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import trio
from kafka_share_proxy.client import open_block
from kafka_share_proxy.client.open_block import OpenBlock

Clock = trio.testing.MockClock


class Network:
    """Runs until it is cancelled."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.log.append("network ended")


class Closing:
    """Consumer that takes this long to close."""

    def __init__(self, log: list[str], seconds: float = 0) -> None:
        self.log, self.seconds = log, seconds

    async def close(self) -> None:
        await trio.sleep(self.seconds)
        self.log.append("closed")


def block(log: list[str], seconds: float = 0, network: type[Network] = Network) -> OpenBlock[Any]:
    network_and_closing: Any = network(log), Closing(log, seconds)
    return OpenBlock(lambda: network_and_closing)


async def test_the_block_is_closed_before_the_network_task_ends(autojump_clock: Clock) -> None:
    log: list[str] = []
    async with block(log, 1):
        log.append("body")
    assert log == ["body", "closed", "network ended"]


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
async def test_an_exception_of_the_block_is_raised_unchanged(kind: type[BaseException], autojump_clock: Clock) -> None:
    log: list[str] = []
    with pytest.raises(kind):
        async with block(log):
            raise kind
    assert log == ["closed", "network ended"]


class Interrupted(Network):
    """Ctrl-C is pressed while it is at work."""

    async def run(self) -> None:
        signal.raise_signal(signal.SIGINT)
        self.log.append("network goes on")
        await super().run()


def test_ctrl_c_ends_the_block_and_never_the_network_task() -> None:
    """Whichever code it interrupts: the group must still be left."""
    log: list[str] = []

    async def program() -> None:
        async with block(log, network=Interrupted):
            await trio.sleep_forever()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trio.run(program)
    finally:
        signal.signal(signal.SIGINT, before)
    assert log == ["network goes on", "closed", "network ended"]


async def test_a_cancelled_block_closes_within_its_limit(autojump_clock: Clock) -> None:
    log: list[str] = []
    begin = trio.current_time()
    with trio.move_on_after(5) as scope:
        async with block(log, 1000):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() - begin == pytest.approx(5 + open_block.CANCELLED_CLOSE_S)
    assert log == ["network ended"]


async def test_a_block_is_opened_once(autojump_clock: Clock) -> None:
    once = block([])
    async with once:
        pass
    with pytest.raises(RuntimeError, match="opened before"):
        await once.__aenter__()
