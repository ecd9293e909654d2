"""DescribeConfigs of a topic, served from memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_share_proxy.brokers.topic_settings import POLICY, REQUESTED_SETTINGS
from kafka_share_proxy.wire.definitions import registry

COMPACTED = {POLICY: "compact"}


def described(request: Any, values: Mapping[str, str | None], error_code: int = 0) -> Any:
    """The response of a broker where a topic has these settings; a broker that refuses shows none."""
    response = registry.message("DescribeConfigsResponse")
    (resource,) = request.resources
    assert (resource.resource_type, resource.configuration_keys) == (2, list(REQUESTED_SETTINGS))
    configs = [
        response.DescribeConfigsResourceResult(name=name, value=value)
        for name, value in values.items()
        if not error_code
    ]
    result = response.DescribeConfigsResult(
        error_code=error_code, resource_type=2, resource_name=resource.resource_name, configs=configs
    )
    return response(results=[result])
