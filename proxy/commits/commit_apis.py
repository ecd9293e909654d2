"""Every API in which individual commits have a say: a new one is a file in `apis/` and one line."""

from __future__ import annotations

from dataclasses import replace

from proxy.commits.apis import (
    k08_offset_commit,
    k09_offset_fetch,
    k28_txn_offset_commit,
    k42_delete_groups,
    k47_offset_delete,
)
from proxy.commits.early_looks import wanted
from proxy.commits.locked_partitions import PartitionBusy
from proxy.commits.once_known import once_known
from proxy.commits.services import CommitServices
from proxy.commits.short_way import ShortWay
from proxy.durable.owner_routing import OwnedApi
from proxy.forwarding.ask_and_reply import decoded
from proxy.forwarding.chain import answer_behind
from proxy.forwarding.declared_api import DeclaredApi, Served
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import FramedHandler, Handler
from proxy.forwarding.split_requests import Splits
from proxy.wire.errors import ErrorCode
from proxy.wire.frames import Answer
from proxy.wire.messages import Message, RequestMessage

COMMITS: tuple[DeclaredApi[CommitServices], ...] = (
    k08_offset_commit.API,
    k09_offset_fetch.API,
    k28_txn_offset_commit.API,
)
"""They stand behind share groups, which refuse what is about an id of theirs."""
DELETIONS: tuple[DeclaredApi[CommitServices], ...] = (k42_delete_groups.API, k47_offset_delete.API)
"""They stand before share groups, which ask the broker about all groups that are not theirs."""


def commits(services: CommitServices) -> dict[int, Served]:
    """API key -> handler, of what stands behind share groups."""
    served = {api.key: _served(api, services) for api in COMMITS}
    served[k08_offset_commit.KEY] = replace(served[k08_offset_commit.KEY], at_once=ShortWay(services).take)
    return served


def deletions(services: CommitServices) -> dict[int, Served]:
    """API key -> handler, of what stands before share groups."""
    return {api.key: _served(api, services) for api in DELETIONS}


def of_owner(services: CommitServices) -> dict[int, FramedHandler]:
    """API key -> handler, of what other proxies may ask of the owner of a group; None: this is not the owner."""
    return {api.key: _owned(api, services).handle_peers for api in (*COMMITS, *DELETIONS)}


def _owned(api: DeclaredApi[CommitServices], services: CommitServices) -> OwnedApi:
    return OwnedApi(api, _unless_busy(api, services), services)


def _unless_busy(api: DeclaredApi[CommitServices], services: CommitServices) -> Handler:
    """The handler; who waits for a partition for too long is told to come again."""
    handler, away = api.handler(services), api.away
    assert away is not None  # noqa: S101  # of our own declarations, held to it by a test

    async def handle(call: Call[Message]) -> Answer | Message | None:
        try:
            return await handler(call)
        except PartitionBusy as busy:
            return await away(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(busy))

    return handle


def _served(api: DeclaredApi[CommitServices], services: CommitServices) -> Served:
    handler: Handler = _owned(api, services).handle
    if api.splits is not None:
        handler = _of_ours(handler, api.splits, services)
    return Served(once_known(api, handler, services), wanted(api.key, services))


def _of_ours(handler: Handler, splits: Splits, services: CommitServices) -> Handler:
    """The handler, given the groups that are known; the others are answered by those behind it."""

    async def handle(call: Call[RequestMessage[Message]]) -> Answer | Message | None:
        mine, rest = list[object](), list[object]()
        for entry in splits.entries(call.message):
            name = splits.group_of(entry)
            (mine if name is not None and services.knows(name) else rest).append(entry)
            await call.work.step()
        if not rest:
            return await handler(call)
        theirs = await answer_behind(splits.about(call, rest))
        answer = await handler(splits.about(call, mine))
        return await splits.joined(call, [theirs, await decoded(call, answer or b"")])

    return handle
