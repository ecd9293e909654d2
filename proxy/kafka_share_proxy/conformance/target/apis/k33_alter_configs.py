"""AlterConfigs: replaces all settings of a topic or group."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.config_resources import ConfigRefused, find_resource
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.AlterConfigsRequest
_Result = messages.AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(call: TargetCall[_Request]) -> messages.AlterConfigsResponse:
    """Replace settings, each resource for itself."""
    return messages.AlterConfigsResponse(responses=[_alter(call, each) for each in call.request.resources])


def _alter(call: TargetCall[_Request], requested: _Request.AlterConfigsResource) -> _Result:
    result = _Result(error_message=None, resource_type=requested.resource_type, resource_name=requested.resource_name)
    resource = find_resource(call.cluster, requested.resource_type, requested.resource_name)
    if isinstance(resource, ConfigRefused):
        result.error_code, result.error_message = resource.error, resource.text
        return result
    stored = {each.name: each.value for each in requested.configs if each.value is not None}
    mistake = resource.mistake(stored)
    if mistake is not None:
        result.error_code, result.error_message = ErrorCode.INVALID_CONFIG, mistake
    elif not call.request.validate_only:
        resource.store(stored)
    return result
