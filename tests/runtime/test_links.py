"""Channels by node: opened when wanted, again when lost, one for each purpose."""

from __future__ import annotations

import trio

from proxy.runtime.links import Links
from proxy.runtime.own_connection import OwnSettings
from proxy.runtime.reactor import Reactor
from proxy.values import Address
from tests.support.small_broker import Broker


def test_a_link_is_opened_and_opened_again() -> None:
    """`changed` tells when to ask again; a broker nobody knows is tried later."""
    reactor = Reactor()
    notes: list[str] = []

    async def main() -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                broker = Broker()
                changed = [trio.Event()]
                links = Links(
                    nursery, reactor, OwnSettings(), lambda event, **_: notes.append(event), lambda: changed[0].set()
                )

                async def wait() -> None:
                    await changed[0].wait()
                    changed[0] = trio.Event()

                unreachable: list[int] = []
                links.on_unreachable = unreachable.append
                assert links.get(1, "a") is None
                await wait()
                assert links.get(1, "a") is None, "no address is known yet"
                assert unreachable == [1]
                links.addresses = {1: await broker.listen(nursery), 2: Address("127.0.0.1", 1)}
                await wait()
                first = links.get(1, "a")
                assert first is not None
                assert links.get(1, "a") is first
                assert links.get(1, "b") is None
                await wait()
                assert links.get(1, "b") not in (None, first)
                first.close("cut")
                await wait()
                assert links.get(1, "a") is None
                await wait()
                assert links.get(1, "a") not in (None, first)
                assert links.get(2, "a") is None
                await wait()
                assert notes == ["state-link-lost", "state-link-failed"]
                assert unreachable == [1, 2]
                links.close()
                nursery.cancel_scope.cancel()

    try:
        reactor.run(main)
    finally:
        reactor.shut()
