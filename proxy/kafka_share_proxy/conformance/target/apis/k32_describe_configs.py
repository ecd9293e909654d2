"""DescribeConfigs of topics, groups and nodes."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.config_resources import (
    ConfigRefused,
    ConfigResource,
    ConfigSource,
    find_resource,
)
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages

_Request = messages.DescribeConfigsRequest
_Response = messages.DescribeConfigsResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Return settings with their origin."""
    return _Response(results=[_described(call, each) for each in call.request.resources])


def _described(
    call: TargetCall[_Request], requested: _Request.DescribeConfigsResource
) -> _Response.DescribeConfigsResult:
    resource = find_resource(call.cluster, requested.resource_type, requested.resource_name)
    result = _Response.DescribeConfigsResult(
        error_message=None, resource_type=requested.resource_type, resource_name=requested.resource_name
    )
    if isinstance(resource, ConfigRefused):
        result.error_code, result.error_message = resource.error, resource.text
        return result
    keys = requested.configuration_keys
    names = [name for name in resource.kinds if keys is None or name in keys]
    result.configs = [_entry(call, resource, name) for name in names]
    return result


def _entry(call: TargetCall[_Request], resource: ConfigResource, name: str) -> _Response.DescribeConfigsResourceResult:
    is_stored = name in resource.stored
    value = resource.stored[name] if is_stored else resource.defaults(name)
    source = resource.source if is_stored else ConfigSource.DEFAULT
    synonym = _Response.DescribeConfigsSynonym
    synonyms = [synonym(name=name, value=value, source=source)] if call.request.include_synonyms else []
    if call.request.include_synonyms and is_stored and not resource.is_read_only:
        synonyms.append(synonym(name=name, value=resource.defaults(name), source=ConfigSource.DEFAULT))
    return _Response.DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=resource.is_read_only,
        config_source=source,
        synonyms=synonyms,
        config_type=resource.kinds[name],
        documentation=None,
    )
