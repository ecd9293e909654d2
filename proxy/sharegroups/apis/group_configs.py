"""GROUP resources in requests about configurations: which part is ours, and who may.

Share groups are served here, so their settings (`share.*`) are kept here; settings of other group types on the same
resource stay with the broker, where it knows such resources at all. Kafka 3.9 does not, and fails a whole request that
names one, so GROUP resources are never sent together with others.

Rights. Where the broker knows GROUP resources it is asked about the resource itself: what it refuses is refused here.
Elsewhere the right is that on the cluster, which a broker shows for the resource of all brokers'
defaults: asking for one of its settings, or for a change of nothing that is only to be checked, touches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from proxy.brokers.questions import Resource, about_settings
from proxy.forwarding.ask_and_reply import ask, told
from proxy.forwarding.interfaces import Call
from proxy.sharegroups.model.settings import GROUP_CONFIGS_BY_NAME
from proxy.wire import messages, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, RemoteProtocolError
from proxy.wire.messages import Message

BROKER, GROUP = 4, 32
"""Resource types (ConfigResource.Type)."""
EVERY_BROKER = ""
"""Name of the BROKER resource that holds the defaults of all brokers."""

DESCRIBE_CONFIGS_VERSION = 1
INCREMENTAL_ALTER_CONFIGS_VERSION = 0

OURS_PREFIX = "share."
SOME_BROKER_SETTING = "log.retention.ms"
"""Asked for, where only the right to ask matters."""

VERSION = 0
"""The version of stored settings that is written. A stored value begins with its version (int16)."""
_VERSION_BYTES = 2

Failure = tuple[ErrorCode, str | None]
"""Code and text for one resource."""

FORBIDDEN: Failure = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    "Not authorized: the cluster has no settings of groups, so those of share groups take the right on the cluster.",
)

NO_ANSWER: Failure = (ErrorCode.UNKNOWN_SERVER_ERROR, "The broker's answer says nothing of the resource asked about.")


class NamesResource(Protocol):
    """An entry of a request about configurations, or of an answer."""

    resource_type: int
    resource_name: str


class _Outcome(Protocol):
    error_code: int
    error_message: str | None


def is_ours(name: str) -> bool:
    """Whether a setting of a GROUP resource is kept here; every name that begins so is, known or not."""
    return name in GROUP_CONFIGS_BY_NAME or name.startswith(OURS_PREFIX)


def is_group_resource(resource: NamesResource) -> bool:
    """Whether a resource in a request about configurations may have anything for us."""
    return bool(resource.resource_type == GROUP)


def is_unknown_resource(code: int) -> bool:
    """Whether a broker answers so for a resource type it does not know."""
    return code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)


def stored_value(settings: Mapping[str, str]) -> bytes | None:
    """What the journal keeps of a group's settings; None = nothing."""
    if not settings:
        return None
    message = messages.ShareGroupSettingsValue
    entries = [message.Setting(name=name, value=value) for name, value in sorted(settings.items())]
    body = registry.codec_of(message, VERSION).encode(message(settings=entries))
    return VERSION.to_bytes(_VERSION_BYTES, "big") + body


def settings_of(value: bytes) -> dict[str, str]:
    """Read a stored value. Raises RemoteProtocolError, also for a version that is not known here."""
    version = int.from_bytes(value[:_VERSION_BYTES], "big", signed=True)
    if version != VERSION or len(value) < _VERSION_BYTES:
        raise RemoteProtocolError(f"settings of a share group of version {version} are not known here")
    stored = registry.codec_of(messages.ShareGroupSettingsValue, VERSION).decode(value, _VERSION_BYTES)
    return {entry.name: entry.value for entry in stored.settings}


async def refusal_to_describe(call: Call[Message]) -> Failure | None:
    """What refuses DESCRIBE_CONFIGS on the cluster; None = allowed."""
    request = about_settings(Resource.BROKER, EVERY_BROKER, [SOME_BROKER_SETTING])
    question = ask(call.connection, ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, request)
    answer = told(messages.DescribeConfigsResponse, DESCRIBE_CONFIGS_VERSION, await question)
    return _cluster_refusal(answer.results)


async def refusal_to_alter(call: Call[Message]) -> Failure | None:
    """What refuses ALTER_CONFIGS on the cluster; None = allowed."""
    message = messages.IncrementalAlterConfigsRequest
    resource = message.AlterConfigsResource(resource_type=BROKER, resource_name=EVERY_BROKER, configs=[])
    request = message(resources=[resource], validate_only=True)
    question = ask(call.connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS_VERSION, request)
    answer = told(messages.IncrementalAlterConfigsResponse, INCREMENTAL_ALTER_CONFIGS_VERSION, await question)
    return _cluster_refusal(answer.responses)


def _cluster_refusal(results: Sequence[_Outcome]) -> Failure | None:
    """Only the code 0 of the one resource that was named grants; 31 is what an authorizer refuses with."""
    if len(results) != 1:
        return NO_ANSWER
    code = ErrorCode.of(results[0].error_code)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return FORBIDDEN
    return None if code == ErrorCode.NONE else (code, results[0].error_message)


def name_of(entry: NamesResource) -> tuple[int, str]:
    """The resource that an entry of a request or of an answer is about."""
    return entry.resource_type, entry.resource_name
