"""Setup of what owns the states in topics of the cluster: the group of proxies, and the links to other proxies."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.feature.feature import Platform
from kafka_share_proxy.fleet.carried import CarriedFeatures
from kafka_share_proxy.fleet.links import FleetLinks, LinkTls
from kafka_share_proxy.loop import boot_clock
from kafka_share_proxy.loop.reactor import Reactor


def membership(config: Config, platform: Platform, stored: Sequence[DescribedState[object]]) -> Membership:
    """Create this proxy's membership in the group of proxies, which owns the stored states.

    Raises:
        ConfigError: several proxies are to own state, but no clock of this machine counts the time in suspension.
    """
    peer = config.peer_address
    if peer is not None and not boot_clock.COUNTS_SUSPENSION:
        raise ConfigError("cluster.mode: fleet needs a clock that goes on while the machine sleeps (CLOCK_BOOTTIME)")
    return Membership(
        platform.client(),
        platform.notes,
        platform.address,
        config.cluster.session_timeout_s,
        peer=str(peer or ""),
        serves=[state.serves for state in stored],
    )


def links(
    config: Config,
    platform: Platform,
    reactor: Reactor,
    owner: Membership,
    carried: CarriedFeatures,
    tls: LinkTls | None = None,
) -> FleetLinks | None:
    """None without a fleet. `carried`: what other proxies may request here."""
    if config.peer_address is None:
        return None
    peer = config.cluster.peer
    return FleetLinks(
        reactor,
        platform.services,
        carried,
        owner,
        platform.notes,
        address=str(config.peer_address),
        secret=peer.key(),
        tls=tls,
    )
