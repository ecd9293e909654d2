"""All APIs that individual commits handle. A new API needs a file in `apis/` and one line here."""

from __future__ import annotations

from kafka_share_proxy.commits.apis import (
    k08_offset_commit,
    k09_offset_fetch,
    k28_txn_offset_commit,
    k42_delete_groups,
    k47_offset_delete,
)
from kafka_share_proxy.commits.early_matches import may_be_individual
from kafka_share_proxy.commits.fast_path import FastPath
from kafka_share_proxy.commits.locked_partitions import PartitionBusy
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.until_loaded import until_loaded
from kafka_share_proxy.durable.owner_routing import OwnedApi
from kafka_share_proxy.forwarding.dispatch.chain import next_response
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Served
from kafka_share_proxy.forwarding.dispatch.routes import FramedHandler, Handler
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import decoded
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode

COMMITS: tuple[DeclaredApi[CommitServices], ...] = (
    k08_offset_commit.API,
    k09_offset_fetch.API,
    k28_txn_offset_commit.API,
)
"""APIs that are handled after share groups, which refuse requests about their own group ids."""
DELETIONS: tuple[DeclaredApi[CommitServices], ...] = (k42_delete_groups.API, k47_offset_delete.API)
"""APIs that are handled before share groups, which forward requests about all other groups."""


def commits(services: CommitServices) -> dict[int, Served]:
    served = {api.key: _served(api, services) for api in COMMITS}
    synchronous = FastPath(services).take
    served[k08_offset_commit.KEY] = served[k08_offset_commit.KEY]._replace(synchronous_handler=synchronous)
    return served


def deletions(services: CommitServices) -> dict[int, Served]:
    return {api.key: _served(api, services) for api in DELETIONS}


def of_owner(services: CommitServices) -> dict[int, FramedHandler]:
    """None: this proxy is not the owner."""
    return {api.key: _owned(api, services).handle_peers for api in (*COMMITS, *DELETIONS)}


def _owned(api: DeclaredApi[CommitServices], services: CommitServices) -> OwnedApi:
    return OwnedApi(api, _unless_busy(api, services), services)


def _unless_busy(api: DeclaredApi[CommitServices], services: CommitServices) -> Handler:
    """Refuse requests that waited too long for a partition with 15."""
    handler, respond_unavailable = api.handler(services), api.respond_unavailable
    assert respond_unavailable is not None  # noqa: S101  # declared in this package, checked by a test

    async def handle(call: Call[Message]) -> ResponseFrame | Message | None:
        try:
            return await handler(call)
        except PartitionBusy as busy:
            return await respond_unavailable(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(busy))

    return handle


def _served(api: DeclaredApi[CommitServices], services: CommitServices) -> Served:
    handler: Handler = _owned(api, services).handle
    if api.splits is not None:
        handler = _of_ours(handler, api.splits, services)
    return Served(until_loaded(api, handler, services), may_be_individual(api.key, services))


def _of_ours(handler: Handler, splits: Splits, services: CommitServices) -> Handler:
    """Leave unknown groups to later handlers or the broker."""

    async def handle(call: Call[RequestMessage[Message]]) -> ResponseFrame | Message | None:
        own_groups, other_groups = list[object](), list[object]()
        for entry in splits.entries(call.message):
            name = splits.group_of(entry)
            (own_groups if name is not None and services.knows(name) else other_groups).append(entry)
            await call.work.step()
        if not other_groups:
            return await handler(call)
        other_responses = await next_response(splits.about(call, other_groups))
        response = await handler(splits.about(call, own_groups))
        return await splits.joined(call, [other_responses, await decoded(call, response or b"")])

    return handle
