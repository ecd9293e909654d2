"""GROUP resources in requests about configurations: which settings are stored here, and the rights needed.

The settings of share groups (`share.*`) are stored here. Those of other group types stay with the broker, if it
supports such resources. Kafka 3.9 fails a whole request that contains one: GROUP resources are never sent together with
others.

If the broker supports GROUP resources, its refusal of a request about the resource is returned. Otherwise the right on
the cluster is required, which a broker checks for the BROKER resource with the defaults of all brokers: reading one of
its settings, or validating an empty change, has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_share_proxy.brokers.queries import Resource, about_settings
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import decode_response, send_request
from kafka_share_proxy.sharegroups.model.settings import GROUP_CONFIGS_BY_NAME
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

BROKER, GROUP = 4, 32
"""Resource types (ConfigResource.Type)."""
EVERY_BROKER = ""
"""Name of the BROKER resource that holds the defaults of all brokers."""

DESCRIBE_CONFIGS_VERSION = 1
INCREMENTAL_ALTER_CONFIGS_VERSION = 0

OURS_PREFIX = "share."
SOME_BROKER_SETTING = "log.retention.ms"
"""Setting that is requested only to check the right to describe."""

VERSION = 0
"""Version of written settings (int16 at their start)."""

Failure = tuple[ErrorCode, str | None]

FORBIDDEN: Failure = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    "Not authorized: the cluster has no settings of groups, so those of share groups take the right on the cluster.",
)

NO_RESPONSE: Failure = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    "The broker's response does not contain the requested resource.",
)


class NamesResource(Protocol):
    """Entry of a request about configurations, or of its response."""

    resource_type: int
    resource_name: str


class _Outcome(Protocol):
    error_code: int
    error_message: str | None


def is_ours(name: str) -> bool:
    """Return True if a setting of a GROUP resource is stored here: any name with our prefix, known or not."""
    return name in GROUP_CONFIGS_BY_NAME or name.startswith(OURS_PREFIX)


def is_group_resource(resource: NamesResource) -> bool:
    return bool(resource.resource_type == GROUP)


def is_unknown_resource(code: int) -> bool:
    """Return True for a broker's error about a resource type that it does not support."""
    return code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)


def stored_value(settings: Mapping[str, str]) -> bytes | None:
    """Encode a group's settings for the journal. None if there are none."""
    if not settings:
        return None
    message = messages.ShareGroupSettingsValue
    entries = [message.Setting(name=name, value=value) for name, value in sorted(settings.items())]
    return numbered.encode(message(settings=entries), VERSION)


def settings_of(value: bytes) -> dict[str, str]:
    """Decode stored settings. Raises RemoteProtocolError, also for an unknown version."""
    stored = numbered.decode(messages.ShareGroupSettingsValue, value, (VERSION,))
    return {entry.name: entry.value for entry in stored.settings}


async def refusal_to_describe(call: Call[Message]) -> Failure | None:
    """Return the error that refuses DESCRIBE_CONFIGS on the cluster. None if allowed."""
    request = about_settings(Resource.BROKER, EVERY_BROKER, [SOME_BROKER_SETTING])
    query = send_request(call.connection, ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, request)
    response = decode_response(messages.DescribeConfigsResponse, DESCRIBE_CONFIGS_VERSION, await query)
    return _cluster_refusal(response.results)


async def refusal_to_alter(call: Call[Message]) -> Failure | None:
    """Return the error that refuses ALTER_CONFIGS on the cluster. None if allowed."""
    message = messages.IncrementalAlterConfigsRequest
    resource = message.AlterConfigsResource(resource_type=BROKER, resource_name=EVERY_BROKER, configs=[])
    request = message(resources=[resource], validate_only=True)
    query = send_request(call.connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS_VERSION, request)
    response = decode_response(messages.IncrementalAlterConfigsResponse, INCREMENTAL_ALTER_CONFIGS_VERSION, await query)
    return _cluster_refusal(response.responses)


def _cluster_refusal(results: Sequence[_Outcome]) -> Failure | None:
    """Return the refusal in the results. Only code 0 for the one resource grants. An authorizer refuses with 31."""
    if len(results) != 1:
        return NO_RESPONSE
    code = ErrorCode.of(results[0].error_code)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return FORBIDDEN
    return None if code == ErrorCode.NONE else (code, results[0].error_message)


def name_of(entry: NamesResource) -> tuple[int, str]:
    return entry.resource_type, entry.resource_name
