"""DeleteGroups (key 42): share groups held here are deleted here, all others by the broker. Versions: all.

The handler receives only requests that name a group held here.

- 30 without DELETE on the group; 68 with members. Otherwise the group, its share sessions and the state of its share
  partitions are deleted, durably before the response. Settings of the group stay: they exist independently of it.
- 15 if the journal does not confirm the deletion in time. The deletion continues, and a retry waits for the same one.
  While it is being stored, no member can join.
- The rest of the request goes to the broker; its results follow. An id named twice has one result.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.brokers.rights import on_delete_group, request_delete_group
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S, JournalRefused
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied, send_upstream
from kafka_share_proxy.loop.promise import Promise, on_its_own, settled
from kafka_share_proxy.loop.waiting import settled_by
from kafka_share_proxy.sharegroups.apis.held_groups import any_is_held, names_held
from kafka_share_proxy.sharegroups.apis.offset_requests import not_starting
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.group import ShareGroup
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.sharegroups.state.state_writes import client_code
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.DELETE_GROUPS


async def handle(call: Call[messages.DeleteGroupsRequest], services: ShareServices) -> bytes:
    """Delete the groups held here, and forward the rest of the request to the broker."""
    names = list(dict.fromkeys(call.message.groups_names))
    own_groups, forwarded_groups = list[str](), list[str]()
    for name in names:
        (forwarded_groups if services.coordinator.group(name) is None else own_groups).append(name)
        await call.work.step()
    queries = {name: request_delete_group(call.connection, name) for name in own_groups}
    outcomes = {}
    for name, query in queries.items():
        outcomes[name] = _delete(services, name, await query)
        await call.work.step()
    deadline = services.timers.now() + RESPONSE_MAX_S
    codes = {
        name: outcome.result()
        if await settled_by(services.timers, deadline, outcome)
        else ErrorCode.COORDINATOR_NOT_AVAILABLE
        for name, outcome in outcomes.items()
    }
    response = messages.DeleteGroupsResponse
    merged = await send_upstream(call, _request(forwarded_groups)) if forwarded_groups else response(results=[])
    own_results = [response.DeletableGroupResult(group_id=name, error_code=code) for name, code in codes.items()]
    merged.results = [*own_results, *merged.results]
    return await replied(call, merged)


def _request(names: list[str]) -> messages.DeleteGroupsRequest:
    return messages.DeleteGroupsRequest(groups_names=names)


def _delete(services: ShareServices, group_id: str, right: memoryview) -> Promise[ErrorCode]:
    refusal = on_delete_group(right)
    if refusal != ErrorCode.NONE:
        return settled(refusal)
    group = services.coordinator.group(group_id)
    if group is None:
        return settled(ErrorCode.GROUP_ID_NOT_FOUND)
    deletions = services.changes.deletions
    if group_id in deletions:
        return deletions[group_id]
    return services.changes.delete_group(group_id, on_its_own(deletion(services, group)))


async def deletion(services: ShareServices, group: ShareGroup) -> ErrorCode:
    """Delete a group and the state of its share partitions, without a time limit."""
    group_id, is_starting = group.group_id, True
    while is_starting:
        code = ErrorCode.GROUP_ID_NOT_FOUND if group.dead else group.deletion_error()
        if code is not ErrorCode.NONE:
            return code
        services.coordinator.sessions.end_group(group_id)  # without a session, no request starts a share partition
        starting = [key for key in services.reads.starting if key.group_id == group_id]
        is_starting = bool(starting)
        await not_starting(services, starting)
    keys = services.coordinator.keys_of(group_id)
    group.deleting = True
    try:
        code = await _forget(services, group_id, keys)
    finally:
        group.deleting = False
    if code is ErrorCode.NONE:
        services.notes("share-group-deleted", group=group_id, partitions=len(keys))
    return code


async def _forget(services: ShareServices, group_id: str, keys: Sequence[ShareKey]) -> ErrorCode:
    """Delete the stored state, then the group in memory. A refused deletion leaves the group, to be deleted again."""
    for code in (await services.writes.remove(keys)).values():
        if code is not ErrorCode.NONE:
            return code
    try:
        await services.writes.put([(StateKey("group", group_id), None)])
        late_shares = services.coordinator.remove_group(group_id)
        if late_shares:
            await services.writes.put([(StateKey("partition", *key), None) for key in late_shares])
    except JournalRefused as refusal:
        return client_code(refusal.code)
    return ErrorCode.NONE


async def _respond_unavailable(
    call: Call[messages.DeleteGroupsRequest], code: ErrorCode, _reason: str
) -> messages.DeleteGroupsResponse:
    message = messages.DeleteGroupsResponse

    def entry(name: str) -> messages.DeleteGroupsResponse.DeletableGroupResult:
        return message.DeletableGroupResult(group_id=name, error_code=code)

    return message(results=await call.work.map(entry, dict.fromkeys(call.message.groups_names)))


def _groups_in_request(request: messages.DeleteGroupsRequest) -> list[str]:
    return request.groups_names


def _group_id(entry: messages.DeleteGroupsResponse.DeletableGroupResult) -> str:
    return entry.group_id


API = DeclaredApi(
    key=KEY,
    handle=handle,
    wants=any_is_held(or_loading=True),
    picks=names_held(_groups_in_request, or_loading=True),
    needs=Needs.OWNER,
    respond_unavailable=_respond_unavailable,
    splits=Splits("groups_names", str, "results", _group_id, str),
    groups_max=10_000,
)
"""The handler itself forwards the part of a request that concerns groups of the brokers."""
