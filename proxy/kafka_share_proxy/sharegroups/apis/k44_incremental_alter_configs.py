"""IncrementalAlterConfigs (key 44) and AlterConfigs (key 33): the settings of share groups held here. Versions: all.

The handlers receive only requests that name a GROUP resource (KIP-932, KIP-1240; measured on Kafka 4.3.0).

- `share.*` settings are stored here, for any id: settings exist independently of the group. They hold from the next
  lock, fetch or heartbeat on. Other settings of the resource, and other resources, go to the broker.
- A resource is changed as a whole or not at all. The resulting settings are checked first, then the request is sent to
  the broker, and its refusals are returned. validate_only stops before the change.
- IncrementalAlterConfigs: SET and DELETE (also of unknown names). AlterConfigs replaces all.
- 40: unknown name (all but `share.*` if the brokers do not support GROUP resources), value of the wrong type or out of
  bounds, session not longer than the heartbeat interval, APPEND or SUBTRACT (no setting is a list).
- 42: null value, a name or resource twice, empty group id, unknown operation.
- 7, as from a controller that gave up waiting, if the journal does not confirm the change in time. It may be in force
  later. Until that is known, the next change of the group waits.
- Rights: see `group_configs`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S, JournalRefused
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream
from kafka_share_proxy.loop.waiting import settled_by
from kafka_share_proxy.sharegroups.apis.group_configs import (
    GROUP,
    NO_RESPONSE,
    Failure,
    is_ours,
    is_unknown_resource,
    name_of,
    refusal_to_alter,
    stored_value,
)
from kafka_share_proxy.sharegroups.apis.group_resources import GROUPS_MAX, by_group_resource, names_group_resource
from kafka_share_proxy.sharegroups.model.queue_settings import DEAD_LETTER_TOPIC
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits, check_stored
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE
from kafka_share_proxy.sharegroups.state.state_writes import client_code
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.message_classes import copied
from kafka_share_proxy.wire.errors import ErrorCode

_Request: TypeAlias = "messages.IncrementalAlterConfigsRequest | messages.AlterConfigsRequest"
_Response: TypeAlias = "messages.IncrementalAlterConfigsResponse"
"""Or AlterConfigsResponse, which has the same fields."""
_Result: TypeAlias = "messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse"
_Changed: TypeAlias = "messages.IncrementalAlterConfigsRequest.AlterConfigsResource"
_Replaced: TypeAlias = "messages.AlterConfigsRequest.AlterConfigsResource"
_Change: TypeAlias = (
    "messages.IncrementalAlterConfigsRequest.AlterableConfig | messages.AlterConfigsRequest.AlterableConfig"
)

KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS

SET, DELETE = 0, 1
NOT_LISTS = {2: "APPEND to", 3: "SUBTRACT from"}
"""Operations (AlterConfigOp.OpType) for settings that are lists."""

Result = tuple[dict[str, str], Failure | None]
"""Resulting settings of a group, and the error that refuses them."""

NOT_KNOWN: Failure = (ErrorCode.REQUEST_TIMED_OUT, "It is not known yet whether a change of this group is stored.")

NO_OTHERS = " (the brokers of this cluster have no settings of groups; the proxy keeps those of share groups)"

Judge = Callable[[Any, Mapping[str, str], BrokerShareLimits], Result]
"""Checks the resources of its request: `incremental` or `replacing`."""


async def handle(call: Call[messages.IncrementalAlterConfigsRequest], services: ShareServices) -> _Response:
    return await _alter(call, services, incremental)


async def handle_alter_configs(call: Call[messages.AlterConfigsRequest], services: ShareServices) -> _Response:
    return await _alter(call, services, replacing)


def incremental(resource: _Changed, stored: Mapping[str, str], limits: BrokerShareLimits) -> Result:
    """Return the settings that result from SET and DELETE, and the error, if any."""
    new_settings = dict(stored)
    for change in (change for change in resource.configs if is_ours(change.name)):
        if change.config_operation == DELETE:
            new_settings.pop(change.name, None)
            continue
        failure = _operation_mistake(change)
        if failure is not None or change.value is None:
            return new_settings, failure or _null_mistake(change.name)
        new_settings[change.name] = change.value
    return new_settings, _refused(resource, new_settings, limits)


def replacing(resource: _Replaced, _: Mapping[str, str], limits: BrokerShareLimits) -> Result:
    """Return the settings that result from AlterConfigs, which are exactly those named, and the error, if any."""
    share_changes = [change for change in resource.configs if is_ours(change.name)]
    failure = next((_null_mistake(change.name) for change in share_changes if change.value is None), None)
    new_settings = {change.name: change.value for change in share_changes if change.value is not None}
    return new_settings, failure or _refused(resource, new_settings, limits)


async def _alter(call: Call[_Request], services: ShareServices, judge: Judge) -> _Response:
    resources = call.message.resources
    forwarded = [resource for resource in resources if resource.resource_type != GROUP]
    response = (
        await _query_settings(call, forwarded, call.message.validate_only)
        if forwarded
        else _response(call)(responses=[])
    )
    counts = Counter(resource.resource_name for resource in resources if resource.resource_type == GROUP)
    for resource in (resource for resource in resources if resource.resource_type == GROUP):
        failure = (
            (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if counts[resource.resource_name] > 1
            else await _alter_group(call, services, resource, judge)
        )
        response.responses.append(_result(call, resource.resource_name, failure))
        await call.work.step()
    response.responses = await call.work.in_order(map(name_of, resources), response.responses, name_of)
    return response


async def _alter_group(
    call: Call[_Request], services: ShareServices, resource: _Changed | _Replaced, judge: Judge
) -> Failure | None:
    """Check, send the broker its part, check again (other requests may have changed the settings meanwhile), store."""
    coordinator, group_id = services.coordinator, resource.resource_name
    if not group_id:
        return ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."
    new_settings, failure = judge(resource, coordinator.stored_settings(group_id), coordinator.limits)
    failure = failure or _without_letters(services, new_settings) or await _request_broker(call, resource)
    if failure is not None:
        return failure
    deadline = services.timers.now() + RESPONSE_MAX_S
    while (earlier_change := services.changes.settings.get(group_id)) is not None:
        if not await settled_by(services.timers, deadline, earlier_change):
            return NOT_KNOWN
    old_settings = coordinator.stored_settings(group_id)
    new_settings, failure = judge(resource, old_settings, coordinator.limits)
    if failure is not None or call.message.validate_only or new_settings == old_settings:
        return failure
    in_force = partial(_in_force, services, group_id, new_settings)
    stored = services.changes.store_settings(group_id, new_settings, stored_value(new_settings), in_force)
    if not await settled_by(services.timers, deadline, stored):
        return NOT_KNOWN
    try:
        stored.result()
    except JournalRefused as refusal:
        return client_code(refusal.code), str(refusal)
    return None


def _without_letters(services: ShareServices, new_settings: Mapping[str, str]) -> Failure | None:
    """Return the error if dead letters cannot be written here."""
    if services.dead_letters is not None or not new_settings.get(DEAD_LETTER_TOPIC, "").strip():
        return None
    return (
        ErrorCode.INVALID_CONFIG,
        f"{DEAD_LETTER_TOPIC}: dead letters are written together with share state, which must be in a topic of the "
        f"cluster. Set `{SHARE_STATE.setting}: topic` in the settings of the proxy.",
    )


def _in_force(services: ShareServices, group_id: str, new_settings: dict[str, str]) -> None:
    """Wake the requests that wait for records, since more or fewer may be available."""
    services.notes("share-group-settings-changed", group=group_id, settings=sorted(new_settings))
    for key, _ in services.coordinator.loaded_of(group_id):
        services.reads.wake(key)
    if services.dead_letters is not None:
        services.dead_letters.settings_changed(group_id)


async def _request_broker(call: Call[_Request], resource: _Changed | _Replaced) -> Failure | None:
    """Send the broker the settings that are not stored here. If there are none, only check the principal's right to
    alter.
    """
    broker_changes = [change for change in resource.configs if not is_ours(change.name)]
    has_only_share_settings = not broker_changes and call.key == KEY
    failure = await _failure_at_broker(
        call, resource.resource_name, broker_changes, call.message.validate_only or has_only_share_settings
    )
    if failure is None or not is_unknown_resource(failure[0]):
        return failure
    if broker_changes:
        type_failure = await _failure_at_broker(call, resource.resource_name, [], validate_only=True)
        if type_failure is None or not is_unknown_resource(type_failure[0]):
            return failure  # it refuses the settings in the request, not the resource type
    return await refusal_to_alter(call) or _unknown_setting(broker_changes)


async def _query_settings(
    call: Call[_Request], resources: Sequence[_Changed | _Replaced], validate_only: bool
) -> _Response:
    """Send the client's request with these resources to the broker, and return its response."""
    request: Any = copied(call.message)  # one of two classes; the copy gets its own resources
    request.resources, request.validate_only = resources, validate_only
    response: _Response = await send_upstream(call, request)
    return response


def _response(call: Call[_Request]) -> type[_Response]:
    response_class: type[_Response] = registry.message(f"{registry.API_KEYS[call.key]}Response")
    return response_class


async def _failure_at_broker(
    call: Call[_Request], group_id: str, configs: Sequence[_Change], validate_only: bool
) -> Failure | None:
    """Send these changes of a GROUP to the broker, and return its error."""
    kind: type[Any] = type(call.message.resources[0])
    resource = kind(resource_type=GROUP, resource_name=group_id, configs=configs)
    response = await _query_settings(call, [resource], validate_only)
    result = next(iter(response.responses), None)
    if result is None:
        return NO_RESPONSE
    if result.error_code == ErrorCode.NONE:
        return None
    return ErrorCode.of(result.error_code), result.error_message


def _unknown_setting(configs: Sequence[_Change]) -> Failure | None:
    """Return the error of a broker that supports GROUP resources for unknown names. Deleting one is not an error."""
    for change in configs:
        mistake = None if change.value is not None else _null_mistake(change.name)
        if isinstance(change, messages.IncrementalAlterConfigsRequest.AlterableConfig):
            if change.config_operation == DELETE:
                continue
            mistake = _operation_mistake(change)
        return mistake or (ErrorCode.INVALID_CONFIG, f"Unknown group config name: {change.name}{NO_OTHERS}")
    return None


def _operation_mistake(change: messages.IncrementalAlterConfigsRequest.AlterableConfig) -> Failure | None:
    operation, name = change.config_operation, change.name
    if operation in NOT_LISTS:
        return ErrorCode.INVALID_CONFIG, f"Can't {NOT_LISTS[operation]} key {name} because its type is not LIST."
    if operation != SET:
        return ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} for {name}"
    return _null_mistake(name) if change.value is None else None


def _null_mistake(name: str) -> Failure:
    return ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}"


def _refused(
    resource: _Changed | _Replaced, new_settings: Mapping[str, str], limits: BrokerShareLimits
) -> Failure | None:
    names = [change.name for change in resource.configs]
    if len(names) != len(set(names)):
        return ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"
    mistake = check_stored(new_settings, limits)
    return None if mistake is None else (ErrorCode.INVALID_CONFIG, mistake)


def _result(call: Call[_Request], name: str, failure: Failure | None) -> _Result:
    entry = _response(call).AlterConfigsResourceResponse
    code, text = failure or (ErrorCode.NONE, None)
    return entry(error_code=code, error_message=text, resource_type=GROUP, resource_name=name)


async def _respond_unavailable(call: Call[_Request], code: ErrorCode, reason: str) -> _Response:
    """Return an error for every resource of this part, including those that are not groups."""
    message = _response(call)

    def entry(resource: _Changed | _Replaced) -> _Result:
        return message.AlterConfigsResourceResponse(
            error_code=code,
            error_message=reason or None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    resources: Sequence[_Changed | _Replaced] = call.message.resources
    return message(responses=await call.work.map(entry, resources))


APIS = tuple(
    DeclaredApi(
        key=key,
        handle=handler,
        picks=names_group_resource,
        needs=Needs.OWNER,
        respond_unavailable=_respond_unavailable,
        splits=by_group_resource("responses"),
        groups_max=GROUPS_MAX,
    )
    for key, handler in ((KEY, handle), (ApiKey.ALTER_CONFIGS, handle_alter_configs))
)
