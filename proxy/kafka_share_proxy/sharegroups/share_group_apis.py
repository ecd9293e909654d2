"""All APIs that are served here while share groups are. A new one is a file in `apis/` and one line here."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.brokers.topic_leaders import METADATA_VERSION
from kafka_share_proxy.durable.owner_routing import OwnedApi
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs, Served
from kafka_share_proxy.forwarding.dispatch.offered_versions import FeatureOffer, ranges_of
from kafka_share_proxy.forwarding.dispatch.routes import FramedHandler, Handler
from kafka_share_proxy.sharegroups.apis import (
    foreign_groups,
    k15_describe_groups,
    k16_list_groups,
    k32_describe_configs,
    k42_delete_groups,
    k44_incremental_alter_configs,
    k74_list_config_resources,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)
from kafka_share_proxy.sharegroups.apis.held_groups import held_anywhere
from kafka_share_proxy.sharegroups.placement import ShareChoice, ShareRules, at_owner, chosen
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.while_loading import when_all_is_loaded, when_loaded
from kafka_share_proxy.wire.definitions import messages

APIS: tuple[DeclaredApi[ShareServices], ...] = (
    *foreign_groups.APIS,
    k15_describe_groups.API,
    k16_list_groups.API,
    k32_describe_configs.API,
    k42_delete_groups.API,
    *k44_incremental_alter_configs.APIS,
    k74_list_config_resources.API,
    k76_share_group_heartbeat.API,
    k77_share_group_describe.API,
    k78_share_fetch.API,
    k79_share_acknowledge.API,
    k90_describe_share_group_offsets.API,
    k91_alter_share_group_offsets.API,
    k92_delete_share_group_offsets.API,
)

SHARE_FEATURE, SHARE_FEATURE_LEVEL = "share.version", 1

OFFER = FeatureOffer(
    name="share groups",
    apis={api.key: api.versions for api in APIS if api.versions is not None},
    raised_to={api.key: api.raised_to for api in APIS if api.raised_to is not None},
    metadata_needed=METADATA_VERSION,
    needed_for="topic ids",
    level=(SHARE_FEATURE, SHARE_FEATURE_LEVEL),
)
"""APIs offered to clients while share groups are served here. Share requests identify topics by id, which the brokers
must support in Metadata (KIP-516: in responses from v10 on, in requests from v12 on).
"""


def is_native(responses: Iterable[messages.ApiVersionsResponse | None]) -> bool:
    """Return True if every broker serves share groups with renewal itself (decides `share_groups.serve: auto`).

    That is, each decoded ApiVersionsResponse (v3+) has ShareFetch v2 and a finalized share.version of at least 1.
    """
    responses = list(responses)
    return bool(responses) and not any(map(lacks, responses))


def lacks(response: messages.ApiVersionsResponse | None) -> str:
    """Return what a broker lacks to serve share groups, and how to add it. Empty if it serves them."""
    needed = k78_share_fetch.VERSIONS[1]
    if response is None or ranges_of(response).get(k78_share_fetch.KEY, (0, -1))[1] < needed:
        return f"has no ShareFetch v{needed} (Kafka 4.2 and later have it)"
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features or ()}
    if levels.get(SHARE_FEATURE, 0) < SHARE_FEATURE_LEVEL:
        level = f"{SHARE_FEATURE}={SHARE_FEATURE_LEVEL}"
        return f"has no {level} (kafka-features.sh upgrade --feature {level})"
    return ""


def served(services: ShareServices, rules: ShareRules | None = None) -> dict[int, Served]:
    """Return handler and request filter by API key. Without rules every share group is served here."""
    handlers = {api.key: api.served(services, _handler(api, services, rules)) for api in APIS}
    if rules is None or not rules.are_mixed:
        return handlers
    choice = choice_of(services, rules)
    return {api.key: chosen(api, handlers[api.key], choice, services) for api in APIS}


def choice_of(services: ShareServices, rules: ShareRules) -> ShareChoice:
    at_brokers = None if services.fleet is None else services.at_brokers
    return ShareChoice(rules, held_anywhere(services), services.gate, services.followed, at_brokers)


def of_owner(services: ShareServices, rules: ShareRules | None = None) -> dict[int, FramedHandler]:
    """Return the handlers, by API key, that other proxies may call at a group's owner. Elsewhere they return None."""
    return {api.key: _owned(api, services, rules).handle_peers for api in APIS if api.needs is Needs.OWNER}


def _handler(api: DeclaredApi[ShareServices], services: ShareServices, rules: ShareRules | None) -> Handler:
    """Return the handler that runs at the proxy that holds the required state, once it is loaded."""
    if api.needs is Needs.OWNER:
        return _owned(api, services, rules).handle
    if api.needs is Needs.GROUP_LOADED:
        return when_loaded(api, services)
    if api.needs is Needs.ALL_LOADED:
        return when_all_is_loaded(api, services)
    return api.handler(services)


def _owned(api: DeclaredApi[ShareServices], services: ShareServices, rules: ShareRules | None) -> OwnedApi:
    handler = api.handler(services)
    if rules is not None and rules.are_mixed and services.fleet is not None:
        handler = at_owner(api, handler, choice_of(services, rules))
    return OwnedApi(api, handler, services)
