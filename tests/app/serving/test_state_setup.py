"""Owner of the stored states: the group of proxies, and the links to other proxies."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.app.serving import features, state_setup
from kafka_share_proxy.app.serving.composition import compose
from kafka_share_proxy.app.settings.tls_contexts import TlsContexts
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.feature.feature import Feature, FeatureKind, Platform, Probe
from kafka_share_proxy.fleet.carried import CarriedFeatures
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop import boot_clock
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, TOPIC

from tests.app.serving.test_composition import A, RecordedNotes, config, snapshot
from tests.support.platforms import platform
from tests.support.ports import World
from tests.support.small_state import TEST_STATE, HeldTexts, partition_of

FLEET = {"cluster": {"mode": "fleet", "peer": {"listen": "h:9500", "secret": "sixteen bytes ok"}}}
IN_MEMORY = {"share_groups": {"serve": "local", "state": "memory"}, "commits": {"serve": False}}
STORED = {"share_groups": {"serve": "local"}, "commits": {"serve": False}}


class Texts(FeatureKind):
    """A feature that stores texts and does nothing else."""

    section = probe_path = "texts"

    def states(self, settings: Any, cluster: Any) -> Any:
        return (TEST_STATE,)

    def build(self, settings: Any, platform: Platform) -> Feature:
        platform.host(TEST_STATE, HeldTexts(), partition_of)
        return Feature(probe=Probe(path="texts"))


def composed(kinds: features.Kinds = features.FEATURES, **settings: Any) -> Any:
    reactor = Reactor(new_pump)
    composed_parts: list[Any] = []

    async def main() -> None:
        import trio

        async with trio.open_nursery() as nursery:
            cluster_snapshot = snapshot({0: A})
            composed_parts.append(
                compose(
                    config(**settings),
                    reactor,
                    RecordedNotes(),
                    nursery,
                    cluster_snapshot,
                    tls=TlsContexts(None, None, None),
                    kinds=kinds,
                )
            )
            composed_parts[0].plane.close()
            nursery.cancel_scope.cancel()

    reactor.run(main)
    reactor.shut()
    return composed_parts[0]


def test_features_in_memory_need_no_home() -> None:
    assert composed(**IN_MEMORY).home is None


def test_every_stored_state_has_a_home() -> None:
    home = composed(**STORED).home
    assert home is not None
    assert home.hosted(TOPIC) is home.states[0]
    assert home.links is None


def test_another_state_lives_next_to_share_state_or_alone() -> None:
    """Also if share groups are in memory: these are served immediately."""
    kinds: Any = (*features.FEATURES, Texts())
    both = composed(kinds, **STORED)
    assert [hosted.state for hosted in both.home.states] == [SHARE_STATE, TEST_STATE]
    alone = composed(kinds, **IN_MEMORY)
    assert [hosted.state for hosted in alone.home.states] == [TEST_STATE]
    assert alone.features[0].services.gate.is_open
    assert not alone.home.states[0].gate.is_open


def test_fleet_has_one_set_of_links() -> None:
    serving_parts = composed(**STORED | FLEET)
    assert serving_parts.home.links is serving_parts.features[0].services.fleet is not None


@pytest.mark.parametrize(("name", "instance"), [(None, "proxy-{}"), ("pod-a", "proxy-pod-a")])
def test_a_proxy_is_known_by_its_name_or_else_by_its_address(name: str | None, instance: str) -> None:
    services_platform = platform(World().services)
    owner = state_setup.membership(config(cluster={"name": name}), services_platform, [SHARE_STATE])
    assert owner._member.instance == instance.format(services_platform.address)


def test_links_carry_nothing_without_a_fleet() -> None:
    services_platform = platform(World().services, client=dict)
    owner: Any = object()
    assert state_setup.links(config(), services_platform, owner, owner, CarriedFeatures()) is None


def test_fleet_needs_a_clock_that_counts_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_clock, "COUNTS_SUSPENSION", False)
    with pytest.raises(ConfigError, match="CLOCK_BOOTTIME"):
        state_setup.membership(config(**FLEET), platform(World().services), [SHARE_STATE])
