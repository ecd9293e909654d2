"""A fleet proxy's knowledge of the groups of other proxies."""

from __future__ import annotations

from kafka_share_proxy.fleet.group_owners import HeldAnywhere
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits


class Others:
    """A fleet whose other members hold two groups."""

    groups = frozenset({"far", "near"})


def test_groups_held_elsewhere_count_as_share_groups():
    """JoinGroup, OffsetCommit and the like for them must be refused at every proxy."""
    coordinator = ShareCoordinator(BrokerShareLimits())
    coordinator.add_group("near")
    groups = coordinator.groups
    alone, fleet = HeldAnywhere(groups, None), HeldAnywhere(groups, Others())  # type: ignore[arg-type]
    assert ("near" in alone, "far" in alone, len(alone) > 0) == (True, False, True)
    assert ("near" in fleet, "far" in fleet, "gone" in fleet) == (True, True, False)
    coordinator.remove_group("near")
    assert len(alone) == 0
    assert len(fleet) > 0
