"""Which groups are served, and what the services say to those who route requests."""

from __future__ import annotations

from kafka_share_proxy.commits.services import FEATURE
from kafka_share_proxy.durable.owner_routing import OwnedServices

from tests.support.commit_world import CommitWorld


def test_pattern_selects_groups_whose_texts_are_read() -> None:
    services = CommitWorld(groups="orders-*").services
    assert services.serves("orders-1")
    assert not services.serves("payments")


def test_services_are_those_of_a_feature_with_owners() -> None:
    services = CommitWorld().services
    owned: OwnedServices = services
    assert (owned.feature, owned.state_wait_s, owned.fleet) == (FEATURE, 0.0, None)
    assert owned.gate.is_open
    assert owned.timers is services.base.timers
