"""IncrementalAlterConfigs of topics and groups (KIP-339)."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

from kafka_share_proxy.conformance.target.config_resources import ConfigRefused, ConfigResource, find_resource
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.topic_configs import ConfigKind
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.IncrementalAlterConfigsRequest
_Result = messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


class ConfigOperation(IntEnum):
    """Operations (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(call: TargetCall[_Request]) -> messages.IncrementalAlterConfigsResponse:
    """Change settings, each resource for itself."""
    return messages.IncrementalAlterConfigsResponse(responses=[_alter(call, each) for each in call.request.resources])


def _alter(call: TargetCall[_Request], requested: _Request.AlterConfigsResource) -> _Result:
    resource = find_resource(call.cluster, requested.resource_type, requested.resource_name)
    refused = resource if isinstance(resource, ConfigRefused) else _apply(call, resource, requested.configs)
    result = _Result(error_message=None, resource_type=requested.resource_type, resource_name=requested.resource_name)
    if refused is not None:
        result.error_code, result.error_message = refused.error, refused.text
    return result


def _apply(
    call: TargetCall[_Request], resource: ConfigResource, changes: list[_Request.AlterableConfig]
) -> ConfigRefused | None:
    repeated = [name for name, count in Counter(each.name for each in changes).items() if count > 1]
    if repeated:
        text = f"Error due to duplicate config keys: {', '.join(repeated)}"
        return ConfigRefused(ErrorCode.INVALID_REQUEST, text)
    stored = dict(resource.stored)
    for change in changes:
        refused = _change(resource, stored, change)
        if refused is not None:
            return refused
    mistake = resource.mistake(stored)
    if mistake is not None:
        return ConfigRefused(ErrorCode.INVALID_CONFIG, mistake)
    if not call.request.validate_only:
        resource.store(stored)
    return None


def _change(resource: ConfigResource, stored: dict[str, str], change: _Request.AlterableConfig) -> ConfigRefused | None:
    name, operation = change.name, change.config_operation
    if operation not in set(ConfigOperation):
        return ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}")
    if operation == ConfigOperation.DELETE:
        stored.pop(name, None)
        return None
    if change.value is None:
        return ConfigRefused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
    if operation == ConfigOperation.SET:
        stored[name] = change.value
        return None
    if resource.kinds.get(name) != ConfigKind.LIST:
        text = f"Can't {ConfigOperation(operation).name} to key {name} because its type is not LIST."
        return ConfigRefused(ErrorCode.INVALID_CONFIG, text)
    present = [each for each in stored.get(name, resource.defaults(name)).split(",") if each]
    values = change.value.split(",")
    if operation == ConfigOperation.APPEND:
        present += [each for each in values if each not in present]
    else:
        present = [each for each in present if each not in values]
    stored[name] = ",".join(present)
    return None
