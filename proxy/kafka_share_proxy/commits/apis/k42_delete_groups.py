"""DeleteGroups (key 42): the ranges of a group are deleted with it.

Versions: all. The broker judges the request, while no commit for the group is in flight. What it deleted is deleted
here as well, before the response. After a failure the ranges are dropped at the next query of the broker
(commits/README.md rules 15 and 22).
"""

from __future__ import annotations

from kafka_share_proxy.commits.locked_partitions import with_whole_group
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import end_group, stored_or_reported
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.DELETE_GROUPS


async def handle(call: Call[messages.DeleteGroupsRequest], services: CommitServices) -> messages.DeleteGroupsResponse:
    results: list[messages.DeleteGroupsResponse.DeletableGroupResult] = []
    response = messages.DeleteGroupsResponse()
    for name in dict.fromkeys(call.message.groups_names):

        async def delete(name: str = name) -> messages.DeleteGroupsResponse:
            return await _delete(call, services, name)

        response = await with_whole_group(services, name, delete)
        results += response.results
    response.results = results
    return response


async def _delete(
    call: Call[messages.DeleteGroupsRequest], services: CommitServices, group_id: str
) -> messages.DeleteGroupsResponse:
    response = await send_upstream(call, messages.DeleteGroupsRequest(groups_names=[group_id]))
    if any(result.error_code == ErrorCode.NONE for result in response.results):
        group = services.held.group(group_id)
        end_group(services, group)
        if await stored_or_reported(services, group):
            services.held.drop(group_id)
    return response


async def _respond_unavailable(
    call: Call[messages.DeleteGroupsRequest], code: ErrorCode, _reason: str
) -> messages.DeleteGroupsResponse:
    response = messages.DeleteGroupsResponse
    names = dict.fromkeys(call.message.groups_names)
    results = [response.DeletableGroupResult(group_id=name, error_code=code) for name in names]
    return response(results=results)


API = DeclaredApi(
    key=KEY,
    handle=handle,
    needs=Needs.OWNER,
    respond_unavailable=_respond_unavailable,
    splits=Splits("groups_names", str, "results", lambda entry: str(entry.group_id), str),
    groups_max=10_000,
)
