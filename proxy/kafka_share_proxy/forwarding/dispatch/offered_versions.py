"""APIs and versions offered to clients: what upstream supports and this proxy knows, and what is served here.

Everything is derived from the message definitions and the broker's response, except the decisions below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

Range = tuple[int, int]
"""Lowest and highest version."""

_Api: TypeAlias = "messages.ApiVersionsResponse.ApiVersion"

CAPS: Mapping[int, int] = {
    ApiKey.FETCH: 15,  # 16-18 put NodeEndpoints after the records, at the end of a response that is streamed
    ApiKey.API_VERSIONS: 4,  # v5 names the cluster and node that the client expects (KIP-1242); clients retry with v4
    ApiKey.DESCRIBE_QUORUM: 1,  # v2 lists the controllers' listeners, which have no address here
}
"""Highest offered version by API key."""

BROKER_INTERNAL: frozenset[int] = frozenset(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""APIs for share state, on the brokers' listener by definition, but for brokers only."""

PRODUCE_ADVERTISED_MIN = 0
"""Lowest Produce version in ApiVersions. Older librdkafka do not compress unless Produce v0 is listed; brokers list it
too and serve v3 (KAFKA-18659).
"""

FEATURES_SINCE = 3
FEATURE_MIN_ZERO_SINCE = 4
"""First version of ApiVersions that lists a supported feature whose minimum is 0 (KAFKA-17011)."""


class FeatureOffer(NamedTuple):
    """Changes to the offered versions by a feature served here."""

    name: str
    apis: Mapping[int, Range]
    """Versions by API key, of APIs served only here."""
    raised_to: Mapping[int, int]
    """Version by API key up to which an API of upstream is offered, if upstream supports only a lower one."""
    metadata_needed: int
    needed_for: str
    level: tuple[str, int]
    """Kafka feature (KIP-584) and its level, supported and finalized."""

    def can_be_served(self, upstream: Mapping[int, Range]) -> bool:
        return upstream.get(ApiKey.METADATA, (0, -1))[1] >= self.metadata_needed


class Offer(NamedTuple):
    """Changes of this proxy to the offered versions, fixed at start."""

    features: tuple[FeatureOffer, ...] = ()
    pass_unknown: bool = False
    """True to also offer APIs that are newer than our definitions, and forward them unread."""

    denied: frozenset[int] = frozenset()
    """API keys that the settings deny."""

    def hides(self, key: int) -> bool:
        """Return True if a denied API is left out. Produce is not: without it librdkafka 2.x fetches no record.

        It takes the brokers' record format from the versions of Produce and Fetch together (rdkafka_feature.c).
        """
        return key in self.denied and key != ApiKey.PRODUCE

    def is_served_here(self, key: int) -> bool:
        return any(key in feature.apis for feature in self.features)


@dataclass(slots=True)
class EffectiveVersions:
    """Versions that the brokers support, and the versions offered. One instance per process.

    A client's own table is made from the response of its broker, so brokers may differ (rolling upgrade).
    """

    offer: Offer
    _by_node: dict[int, Mapping[int, Range]] = field(default_factory=dict)
    upstream: Mapping[int, Range] = field(default_factory=dict)
    """Range by API key that every known broker supports. Empty before the first response."""
    ranges: Mapping[int, Range] = field(default_factory=dict)
    """Range by API key offered to clients."""

    def learn(self, node_id: int, ranges: Mapping[int, Range]) -> None:
        """Store the ranges that a broker reported. `node_id` is UNKNOWN_NODE if the broker is not identified."""
        if self._by_node.get(node_id) != ranges:
            self._by_node[node_id] = dict(ranges)
            self._combine()

    def forget(self, node_id: int) -> None:
        if self._by_node.pop(node_id, None) is not None:
            self._combine()

    def _combine(self) -> None:
        self.upstream = common(self._by_node.values())
        self.ranges = effective(self.upstream, self.offer)


def common(tables: Iterable[Mapping[int, Range]]) -> dict[int, Range]:
    """Return the common range of each API key that all tables have, without those that have none."""
    tables = list(tables)
    keys = set.intersection(*(set(table) for table in tables)) if tables else set()
    ranges = {
        key: (max(table[key][0] for table in tables), min(table[key][1] for table in tables)) for key in sorted(keys)
    }
    return {key: versions for key, versions in ranges.items() if versions[0] <= versions[1]}


@cache
def client_facing() -> frozenset[int]:
    """Return the API keys that clients may use: on the brokers' listener by definition, and not for brokers only."""
    return frozenset(key for key in registry.API_KEYS if "broker" in registry.listeners(key)) - BROKER_INTERNAL


def is_newer(key: int) -> bool:
    """Return True if an API key is newer than our definitions, not retired or invalid."""
    return key > max(registry.API_KEYS)


def effective(upstream: Mapping[int, Range], offer: Offer) -> dict[int, Range]:
    ranges = _offered_ranges(upstream, offer)
    for feature in offer.features:
        if feature.can_be_served(upstream):
            ranges.update({key: versions for key, versions in feature.apis.items() if not offer.hides(key)})
    return dict(sorted(ranges.items()))


def _offered_ranges(upstream: Mapping[int, Range], offer: Offer) -> dict[int, Range]:
    """Return the offered range of each key in upstream's list that is not hidden."""
    offered = ((key, _offered(key, supported, offer)) for key, supported in upstream.items())
    return {key: versions for key, versions in offered if versions is not None}


def shortcomings(upstream: Mapping[int, Range], offer: Offer) -> tuple[str, ...]:
    """Return sentences for `check` about what will not work with this upstream."""
    sentences = []
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS):
        if _offered(key, upstream.get(key, (0, -1)), offer) is None:
            name, known = registry.API_KEYS[key], registry.versions(key)
            supported = _words(upstream[key]) if key in upstream else "none"
            sentences.append(
                f"{name}: upstream serves {supported}, this proxy knows {_words(known)}; no version in common"
            )
    highest = upstream.get(ApiKey.METADATA, (0, -1))[1]
    has = f"which has only v{highest}" if highest >= 0 else "which has no Metadata at all"
    sentences += [
        f"{feature.name} cannot be served here: they need Metadata v{feature.metadata_needed} upstream "
        f"({feature.needed_for}), {has}"
        for feature in offer.features
        if not feature.can_be_served(upstream)
    ]
    return tuple(sentences)


def _offered(key: int, supported: Range, offer: Offer) -> Range | None:
    """Return the offered range of one key in upstream's list. None to hide it."""
    if key not in registry.API_KEYS:
        return supported if offer.pass_unknown and is_newer(key) else None
    if offer.is_served_here(key) or key not in client_facing() or offer.hides(key):
        return None
    lowest, highest = registry.versions(key)
    for feature in offer.features:
        supported = supported[0], max(supported[1], feature.raised_to.get(key, supported[1]))
    common = max(lowest, supported[0]), min(highest, supported[1], CAPS.get(key, highest))
    if common[0] > common[1]:
        return None
    return (PRODUCE_ADVERTISED_MIN, common[1]) if key == ApiKey.PRODUCE else common


def _words(versions: Range) -> str:
    return f"v{versions[0]}-v{versions[1]}"


def ranges_of(response: messages.ApiVersionsResponse) -> dict[int, Range]:
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys or ()}


def offer_to_client(response: messages.ApiVersionsResponse, version: int, offer: Offer) -> None:
    """Change a decoded ApiVersionsResponse of the broker into the one for the client.

    `version` is that of the body: a response with error 35 always has body v0 (KIP-511), and lists ApiVersions only.
    """
    upstream = ranges_of(response)
    is_complete = response.error_code == ErrorCode.NONE
    offered_ranges = effective(upstream, offer) if is_complete else _offered_ranges(upstream, offer)
    entries = {item.api_key: item for item in response.api_keys or ()}
    response.api_keys = [_entry(entries.get(key), key, versions) for key, versions in offered_ranges.items()]
    for feature in offer.features:
        if is_complete and feature.can_be_served(upstream):
            _offer_level(response, version, *feature.level)


def _entry(entry: _Api | None, key: int, versions: Range) -> _Api:
    if entry is None:
        return messages.ApiVersionsResponse.ApiVersion(api_key=key, min_version=versions[0], max_version=versions[1])
    entry.min_version, entry.max_version = versions
    return entry


def _offer_level(response: messages.ApiVersionsResponse, version: int, name: str, level: int) -> None:
    """Set a feature, supported and finalized, to the level served here. Upstream's own level does not apply."""
    message = messages.ApiVersionsResponse
    if version >= FEATURE_MIN_ZERO_SINCE:
        supported = message.SupportedFeatureKey(name=name, min_version=0, max_version=level)
        response.supported_features = _replaced(response.supported_features, supported)
    if version >= FEATURES_SINCE:
        final = message.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        response.finalized_features = _replaced(response.finalized_features, final)


class _Named(Protocol):
    name: str


F = TypeVar("F", bound=_Named)


def _replaced(features: Iterable[F], feature: F) -> list[F]:
    return [*(other for other in features if other.name != feature.name), feature]
