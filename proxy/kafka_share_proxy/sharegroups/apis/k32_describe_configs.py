"""DescribeConfigs (key 32): the settings of share groups held here, everything else from the broker. Versions: all.

The handler receives only requests that name a GROUP resource (KIP-932, KIP-1240; measured on Kafka 4.3.0).

- A GROUP resource shows every `share.*` setting, set or not, for any id: settings exist independently of the group. The
  source is 8 if the group sets it, 4 if the proxy's configuration sets its default, 5 for Kafka's default. The stored
  value is shown, even if it is clamped to bounds.
- Settings of other group types follow if the broker has any, without its own `share.*`, which have no effect.
- Keys that do not exist are left out. An empty list of keys means all, as null does. An empty name: 42.
- Rights: see `group_configs`. Addresses in settings of brokers: see `k32_broker_addresses`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kafka_share_proxy.forwarding.apis import k32_broker_addresses
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied, send_upstream
from kafka_share_proxy.sharegroups.apis.group_configs import (
    GROUP,
    NO_RESPONSE,
    Failure,
    is_ours,
    is_unknown_resource,
    name_of,
    refusal_to_describe,
)
from kafka_share_proxy.sharegroups.apis.group_resources import GROUPS_MAX, by_group_resource, names_group_resource
from kafka_share_proxy.sharegroups.model.settings import (
    GROUP_CONFIGS_BY_NAME,
    BrokerShareLimits,
    GroupConfigKey,
)
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.message_classes import copied
from kafka_share_proxy.wire.errors import ErrorCode

_Resource: TypeAlias = "messages.DescribeConfigsRequest.DescribeConfigsResource"
_Setting: TypeAlias = "messages.DescribeConfigsResponse.DescribeConfigsResourceResult"
_Synonym: TypeAlias = "messages.DescribeConfigsResponse.DescribeConfigsSynonym"

KEY = ApiKey.DESCRIBE_CONFIGS

STATIC_BROKER_CONFIG, DEFAULT_CONFIG, GROUP_CONFIG = 4, 5, 8
"""Sources (DescribeConfigsResponse.ConfigSource)."""

OTHER_GROUPS_SETTING = "consumer.session.timeout.ms"
"""A setting of another group type, requested if the request has only our keys, since an empty list means all keys."""

_KAFKA_DEFAULTS = BrokerShareLimits()


async def handle(call: Call[messages.DescribeConfigsRequest], services: ShareServices) -> bytes:
    resources = call.message.resources
    forwarded = [resource for resource in resources if resource.resource_type != GROUP]
    groups = [resource for resource in resources if resource.resource_type == GROUP and resource.resource_name]
    response = messages.DescribeConfigsResponse(results=[])
    if forwarded:
        response = await _query_settings(call, forwarded)
        k32_broker_addresses.hide(response, services.book)
    broker_settings = await _broker_settings(call, groups) if groups else {}
    described = [resource for resource in resources if resource.resource_type == GROUP]
    results = []
    for resource in described:
        results.append(
            _share_settings(call.message, resource, services, broker_settings.get(resource.resource_name, NO_RESPONSE))
        )
        await call.work.pause()
    response.results = await call.work.in_order(map(name_of, resources), [*response.results, *results], name_of)
    return await replied(call, response)


async def _broker_settings(
    call: Call[messages.DescribeConfigsRequest], resources: list[_Resource]
) -> dict[str, list[_Setting] | Failure]:
    """Return the broker's settings of these groups, which are of other types, or its error."""
    by_name = {resource.resource_name: _without_ours(resource) for resource in resources}
    response = await _query_settings(call, list(by_name.values()))
    if all(is_unknown_resource(result.error_code) for result in response.results):
        refusal = await refusal_to_describe(call)
        return {name: [] if refusal is None else refusal for name in by_name}
    settings: dict[str, list[_Setting] | Failure] = {}
    for result in response.results:
        if result.error_code == ErrorCode.NONE:
            settings[result.resource_name] = [entry for entry in result.configs if not is_ours(entry.name)]
        else:
            settings[result.resource_name] = ErrorCode.of(result.error_code), result.error_message
        await call.work.step()
    return settings


async def _query_settings(
    call: Call[messages.DescribeConfigsRequest], resources: list[_Resource]
) -> messages.DescribeConfigsResponse:
    """Send the client's request with these resources to the broker, and return its response."""
    request = copied(call.message)
    request.resources = resources
    return await send_upstream(call, request)


def _without_ours(resource: _Resource) -> _Resource:
    keys = resource.configuration_keys
    keys_for_broker = [key for key in keys if not is_ours(key)] or [OTHER_GROUPS_SETTING] if keys else None
    return messages.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configuration_keys=keys_for_broker
    )


def _share_settings(
    request: messages.DescribeConfigsRequest,
    resource: _Resource,
    services: ShareServices,
    broker_settings: list[_Setting] | Failure,
) -> messages.DescribeConfigsResponse.DescribeConfigsResult:
    message = messages.DescribeConfigsResponse
    result = message.DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message="",
        resource_type=GROUP,
        resource_name=resource.resource_name,
        configs=[],
    )
    if not resource.resource_name:
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "Group name must not be empty"
    elif isinstance(broker_settings, tuple):
        result.error_code, result.error_message = broker_settings
    else:
        keys = resource.configuration_keys
        stored, limits = services.coordinator.stored_settings(resource.resource_name), services.coordinator.limits
        result.configs = [
            *(
                _entry(request, key, stored, limits)
                for key in GROUP_CONFIGS_BY_NAME.values()
                if not keys or key.name in keys
            ),
            *(entry for entry in broker_settings if not keys or entry.name in keys),
        ]
    return result


def _entry(
    request: messages.DescribeConfigsRequest, key: GroupConfigKey, stored: Mapping[str, str], limits: BrokerShareLimits
) -> _Setting:
    message = messages.DescribeConfigsResponse
    synonyms = _synonyms(key, stored, limits)
    return message.DescribeConfigsResourceResult(
        name=key.name,
        value=synonyms[0].value,
        read_only=False,
        config_source=synonyms[0].source,
        is_sensitive=False,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=key.type,
        documentation=key.documentation if request.include_documentation else None,
    )


def _synonyms(key: GroupConfigKey, stored: Mapping[str, str], limits: BrokerShareLimits) -> list[_Synonym]:
    """Return the sources of a value, the effective one first."""
    synonym = messages.DescribeConfigsResponse.DescribeConfigsSynonym
    broker_name, value, default = key.synonym or key.name, key.default_value(limits), key.default_value(_KAFKA_DEFAULTS)
    synonyms = [synonym(name=broker_name, value=default, source=DEFAULT_CONFIG)]
    if value != default:
        synonyms.insert(0, synonym(name=broker_name, value=value, source=STATIC_BROKER_CONFIG))
    if key.name in stored:
        synonyms.insert(0, synonym(name=key.name, value=stored[key.name].strip(), source=GROUP_CONFIG))
    return synonyms


async def _respond_unavailable(
    call: Call[messages.DescribeConfigsRequest], code: ErrorCode, reason: str
) -> messages.DescribeConfigsResponse:
    """Return an error for every resource of this part, including those that are not groups."""
    message = messages.DescribeConfigsResponse

    def entry(resource: _Resource) -> messages.DescribeConfigsResponse.DescribeConfigsResult:
        return message.DescribeConfigsResult(
            error_code=code,
            error_message=reason or None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )

    return message(results=await call.work.map(entry, call.message.resources))


API = DeclaredApi(
    key=KEY,
    handle=handle,
    picks=names_group_resource,
    needs=Needs.OWNER,
    respond_unavailable=_respond_unavailable,
    splits=by_group_resource("results"),
    groups_max=GROUPS_MAX,
)
