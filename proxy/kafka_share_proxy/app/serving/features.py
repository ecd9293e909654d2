"""The features of this proxy. Everything that `app/` does for a feature, it does for each of this tuple."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.commits.feature import INDIVIDUAL
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.feature.checks import FeatureCheck
from kafka_share_proxy.feature.feature import Feature, FeatureKind, Platform, SharedRules, Stage
from kafka_share_proxy.forwarding.dispatch.chain import in_order
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.offered_versions import Offer
from kafka_share_proxy.loop.log_levels import EventLevels
from kafka_share_proxy.sharegroups.feature import SHARE_GROUPS
from kafka_share_proxy.views.feature import VIEWS

Kinds = tuple[FeatureKind, ...]

FEATURES: Kinds = (SHARE_GROUPS, INDIVIDUAL, VIEWS)
"""Every feature, in the order in which `check` reports them."""


def event_levels(kinds: Kinds = FEATURES) -> EventLevels:
    """Return the level of each log event of the platform and of the features."""
    levels = dict(observe.EVENT_LEVELS)
    for kind in kinds:
        levels |= kind.events
    return levels


def decisive_topics(kinds: Kinds = FEATURES) -> list[str]:
    """Return the topics whose existence decides what is served."""
    return [topic for kind in kinds for topic in kind.decisive_topics]


def checks(config: Config) -> tuple[FeatureCheck, ...]:
    """Return what each feature contributes to `check`."""
    candidates = (kind.check(_settings(config, kind)) for kind in FEATURES)
    return tuple(check for check in candidates if check is not None)


def offer(config: Config, cluster: ClusterSnapshot, kinds: Kinds = FEATURES) -> Offer:
    """Return the APIs offered to clients."""
    offered = [each for kind in kinds for each in kind.offers(_settings(config, kind), cluster)]
    return Offer(tuple(offered), pass_unknown=config.unknown_apis == "pass", denied=config.apis.denied)


def stored_states(config: Config, cluster: ClusterSnapshot, kinds: Kinds = FEATURES) -> Iterator[DescribedState[Any]]:
    for kind in kinds:
        yield from kind.states(_settings(config, kind), cluster)


def shared_rules(config: Config, kinds: Kinds = FEATURES) -> SharedRules:
    """Return the rules that features declare for each other."""
    rules = SharedRules()
    for kind in kinds:
        rules = kind.rules(_settings(config, kind), rules)
    return rules


def build(config: Config, platform: Platform, kinds: Kinds = FEATURES) -> tuple[Feature, ...]:
    """Build every feature. Raises ConfigError."""
    return tuple(kind.build(_settings(config, kind), platform) for kind in kinds)


def handlers(features: Iterable[Feature]) -> dict[int, Served]:
    """Return the handlers of all features by API key, those of one API as a chain in the order of their stages."""
    built = tuple(features)
    return in_order(feature.apis[stage] for stage in Stage for feature in built if stage in feature.apis)


def _settings(config: Config, kind: FeatureKind) -> Any:
    return getattr(config, kind.section, None)
