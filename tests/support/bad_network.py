"""A bad network between a client and brokers: faults, one after the other, of relays that stall, trickle and cut."""

from __future__ import annotations

import random
from contextlib import ExitStack

import trio
from kafka_share_proxy.localkafka.addresses import HOST

from tests.support.relay import Relay

STALL_S = 4.0
"""The longest stall: longer than the time-out of a request, shorter than that of a session."""
TRICKLE_S = 2.0
GOOD_S = 1.0
"""The longest time between two faults."""


class BadNetwork:
    """Connects through a relay to each address that is dialled; all of them misbehave together."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._relays: dict[tuple[str, int], Relay] = {}
        self._open = ExitStack()
        self.dialled = 0
        """Number of requested connections."""
        self.faults: list[str] = []

    def __enter__(self) -> BadNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Connect to an address through a relay. An argument for `connect=` of a consumer."""
        self.dialled += 1
        if (host, port) not in self._relays:
            self._relays[host, port] = self._open.enter_context(Relay(f"{host}:{port}"))
        return await trio.open_tcp_stream(HOST, self._relays[host, port].port)

    async def misbehave(self, seconds: float) -> None:
        """Cause one fault after the other for this time. Then the network is good again."""
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            fault = self._dice.choice((self._stall, self._trickle, self._cut, self._lose_responses, self._refuse))
            self.faults.append(fault.__name__.strip("_"))
            await fault()
            for relay in self._relays.values():
                relay.go_on()
            await trio.sleep(self._dice.uniform(0, GOOD_S))

    async def _stall(self) -> None:
        for relay in self._relays.values():
            relay.stall()
        await trio.sleep(self._dice.uniform(0.1, STALL_S))

    async def _trickle(self) -> None:
        size = self._dice.choice((7, 100, 1000))
        for relay in self._relays.values():
            relay.trickle = size
        await trio.sleep(self._dice.uniform(0.5, TRICKLE_S))

    async def _cut(self) -> None:
        for relay in self._relays.values():
            relay.cut()
        await trio.lowlevel.checkpoint()

    async def _lose_responses(self) -> None:
        for relay in self._relays.values():
            relay.lose_responses()
        await trio.sleep(self._dice.uniform(0.1, 1.0))

    async def _refuse(self) -> None:
        for relay in self._relays.values():
            relay.refusing = True
            relay.cut()
        await trio.sleep(self._dice.uniform(0.1, 1.0))
