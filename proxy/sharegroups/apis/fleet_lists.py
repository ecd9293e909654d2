"""What the other proxies of a fleet hold, for requests about all groups."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.durable.gate import HOLD_MAX_S
from proxy.fleet.group_owners import Holdings, Peer, PeerLost
from proxy.loop.promise import all_of
from proxy.loop.waiting import first_until
from proxy.sharegroups.services import ShareServices


async def held_elsewhere(services: ShareServices) -> Sequence[Holdings] | None:
    """What each of the others holds; None when somebody cannot be asked now, after waiting for a bounded time.

    A list that leaves out what one proxy holds would say that these groups do not exist.
    """
    fleet, gate, timers = services.fleet, services.gate, services.timers
    if fleet is None:
        return ()
    deadline = timers.now() + HOLD_MAX_S
    while True:
        peers = fleet.owners([partition for partition in gate.all if not gate.lets_in((partition,))])
        if peers is not None:
            try:
                return await all_of(_ask(peer) for peer in peers)
            except PeerLost:
                pass
        if timers.now() >= deadline:
            return None
        changed = gate.wait()
        try:
            await first_until(timers, deadline, changed)
        finally:
            gate.forget(changed)


async def _ask(peer: Peer) -> Holdings:
    return await peer.holdings()
