"""Which states a proxy hosts, by its settings, and what they are given."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.app.serving import state_setup
from kafka_share_proxy.app.serving.state_setup import StateSetup
from kafka_share_proxy.brokers.own_connection import OwnSettings
from kafka_share_proxy.durable.hosted_state import HostedState
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop import boot_clock
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE, TOPIC
from kafka_share_proxy.wire.errors import ErrorCode

from tests.app.serving.test_composition import Said, config, parts
from tests.support.small_state import TEST_STATE, HeldTexts, text_gate

FLEET = {"cluster": {"mode": "fleet", "peer": {"listen": "h:9500", "secret": "sixteen bytes ok"}}}


@pytest.fixture
def reactor() -> Any:
    made = Reactor(new_pump)
    yield made
    made.shut()


def setup(reactor: Reactor, *, topic: bool = True, **settings: Any) -> StateSetup:
    loaded, notes = config(**settings), Said()
    services = parts(loaded).services
    if topic:
        services.journal = TopicJournal(SHARE_STATE, reactor, notes, "h:9092")
    return StateSetup(
        config=loaded, services=services, reactor=reactor, notes=notes, settings=OwnSettings(), address="h:9092"
    )


def texts(made: StateSetup) -> HostedState:
    """Return texts about a state in addition to that of share groups."""
    journal = TopicJournal(TEST_STATE, made.reactor, made.notes, made.address)
    return HostedState(journal, HeldTexts(), text_gate(), made.access)


def test_share_groups_in_memory_need_no_home(reactor: Reactor) -> None:
    made = setup(reactor, topic=False)
    assert state_setup.home(made) is None
    assert made.services.gate.is_open


def test_share_state_waits_until_it_is_loaded(reactor: Reactor) -> None:
    made = setup(reactor)
    home = state_setup.home(made)
    assert home is not None
    assert home.hosted(TOPIC) is home.states[0]
    assert made.services.gate.refusal == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (home.links, made.services.fleet) == (None, None)


def test_another_state_lives_beside_it_or_alone(reactor: Reactor) -> None:
    """Also if share groups are in memory: these are served immediately."""
    states = (*state_setup.STATES, texts)
    both = state_setup.home(setup(reactor), states)
    assert both is not None
    assert [hosted.state.topic for hosted in both.states] == [TOPIC, TEST_STATE.topic]
    made = setup(reactor, topic=False)
    alone = state_setup.home(made, states)
    assert alone is not None
    assert [hosted.state.topic for hosted in alone.states] == [TEST_STATE.topic]
    assert made.services.gate.is_open
    assert not alone.states[0].gate.is_open


def test_fleet_has_one_set_of_links(reactor: Reactor) -> None:
    made = setup(reactor, **FLEET)
    home = state_setup.home(made, (*state_setup.STATES, texts))
    assert home is not None
    assert home.links is made.services.fleet is not None


def test_fleet_needs_a_clock_that_counts_sleep(reactor: Reactor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_clock, "COUNTS_SUSPENSION", False)
    with pytest.raises(ConfigError, match="CLOCK_BOOTTIME"):
        state_setup.home(setup(reactor, **FLEET))
