"""Setup of what owns the states in topics of the cluster: the group of proxies, and the links to other proxies."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers.seat import Seat
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.feature.feature import Platform
from kafka_share_proxy.fleet.carried import CarriedFeatures
from kafka_share_proxy.fleet.links import FleetLinks, LinkTls, LocalLinks
from kafka_share_proxy.loop import boot_clock
from kafka_share_proxy.loop.reactor import Reactor


def membership(
    config: Config, platform: Platform, stored: Sequence[DescribedState[object]], seat: Seat | None = None
) -> Membership:
    """Create this proxy's membership in the group of proxies, which owns the stored states.

    `seat`: of a worker.

    Raises:
        ConfigError: several proxies are to own state, but no clock of this machine counts the time in suspension.
    """
    peer = str(config.peer_address or "") if seat is None else seat.name
    if peer and not boot_clock.COUNTS_SUSPENSION:
        needing = "cluster.mode: fleet needs" if config.cluster.mode == "fleet" else "workers need"
        raise ConfigError(f"{needing} a clock that continues while the machine sleeps (CLOCK_BOOTTIME)")
    return Membership(
        platform.client(),
        platform.notes,
        platform.address,
        config.cluster.session_timeout_s,
        name=config.cluster.name or "",
        peer=peer,
        protocol="" if seat is None else seat.protocol,
        serves=[state.serves for state in stored],
        is_successor=seat is not None and seat.is_successor,
    )


def links(
    config: Config,
    platform: Platform,
    reactor: Reactor,
    owner: Membership,
    carried: CarriedFeatures,
    tls: LinkTls | None = None,
    seat: Seat | None = None,
) -> FleetLinks | None:
    """Return the links, None without fleet and workers. `carried`: requests others may send. `seat`: of a worker."""
    if config.peer_address is None and seat is None:
        return None
    secret = None if seat is None else seat.secret
    return FleetLinks(
        reactor,
        platform.services,
        carried,
        owner,
        platform.notes,
        address=str(config.peer_address) if seat is None else seat.name,
        secret=config.cluster.peer.key() if secret is None else secret,
        tls=tls,
        local=None if seat is None else LocalLinks(seat.links, seat.paths),
    )
