"""Groups held by the other proxies of a fleet, for requests about all groups."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.fleet.group_owners import Holdings, Peer, PeerLost
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.loop.promise import all_of
from kafka_share_proxy.loop.waiting import first_until
from kafka_share_proxy.sharegroups.services import ShareServices


async def held_elsewhere(services: ShareServices) -> Sequence[Holdings] | None:
    """Return the groups of each other proxy. None if one of them cannot be reached in time: without its groups, the
    list would mean to the client that they do not exist.
    """
    fleet, gate, timers = services.fleet, services.gate, services.timers
    if fleet is None:
        return ()
    deadline = timers.now() + HOLD_MAX_S
    while True:
        peers = fleet.owners([partition for partition in gate.all if not gate.lets_in((partition,))])
        if peers is not None:
            try:
                return await all_of(_query(peer) for peer in peers)
            except PeerLost:
                pass
        if timers.now() >= deadline:
            return None
        changed = gate.wait()
        try:
            await first_until(timers, deadline, changed)
        finally:
            gate.forget(changed)


async def _query(peer: Peer) -> Holdings:
    return await peer.holdings()
