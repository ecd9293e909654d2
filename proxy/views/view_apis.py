"""Every API that views change, with its handler: put in front of those that share groups change."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from proxy.forwarding.interfaces import Call
from proxy.forwarding.route_table import Served
from proxy.views.apis import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k37_create_partitions,
    k68_consumer_group_heartbeat,
    k75_describe_topic_partitions,
    share_group_refusals,
)
from proxy.views.apis.base_questions import names_view
from proxy.views.services import ViewServices
from proxy.wire import frames


def served(views: ViewServices) -> dict[int, Served]:
    """API key -> handler, and which requests it gets, where views are served."""
    catalog = views.catalog
    by_id = share_group_refusals.has_view_id(catalog)

    def of(
        handler: Callable[[Call, ViewServices], Coroutine[Any, Any, frames.Answer | None]],
        serve_here: Callable[[memoryview], bool],
    ) -> Served:
        return Served(partial(_given, handler, views), serve_here)

    fetch = of(k01_fetch.handle, k01_fetch.serve_here(catalog))
    return {
        k00_produce.KEY: of(k00_produce.handle, k00_produce.may_name_view(catalog)),
        k01_fetch.KEY: replace(fetch, passes=k01_fetch.passes(catalog)),
        k02_list_offsets.KEY: of(k02_list_offsets.handle, names_view),
        k03_metadata.KEY: of(k03_metadata.handle, k03_metadata.may_name_view(catalog)),
        k23_offset_for_leader_epoch.KEY: of(k23_offset_for_leader_epoch.handle, names_view),
        k20_delete_topics.KEY: of(k20_delete_topics.handle, k20_delete_topics.serve_here(catalog)),
        share_group_refusals.HEARTBEAT: of(share_group_refusals.heartbeat, share_group_refusals.names_view),
        share_group_refusals.FETCH: of(share_group_refusals.fetch, by_id),
        share_group_refusals.ALTER_OFFSETS: of(share_group_refusals.alter_offsets, share_group_refusals.names_view),
        k19_create_topics.KEY: of(k19_create_topics.handle, k19_create_topics.serve_here),
        k21_delete_records.KEY: of(k21_delete_records.handle, k21_delete_records.serve_here),
        k37_create_partitions.KEY: of(k37_create_partitions.handle, k37_create_partitions.serve_here),
        k68_consumer_group_heartbeat.KEY: of(
            k68_consumer_group_heartbeat.handle, k68_consumer_group_heartbeat.serve_here
        ),
        k75_describe_topic_partitions.KEY: of(
            k75_describe_topic_partitions.handle, k75_describe_topic_partitions.serve_here
        ),
    }


def _given(
    handler: Callable[[Call, ViewServices], Coroutine[Any, Any, frames.Answer | None]], views: ViewServices, call: Call
) -> Coroutine[Any, Any, frames.Answer | None]:
    return handler(call, views)


def in_front(views: Mapping[int, Served], others: Mapping[int, Served]) -> dict[int, Served]:
    """Both: a handler of views sees a request first; what it lets go is then looked at as if there were no views."""
    return {**others, **{key: _joined(each, others.get(key)) for key, each in views.items()}}


def _joined(view: Served, other: Served | None) -> Served:
    if other is None:
        return view
    view_here, other_here = view.serve_here, other.serve_here

    async def handle(call: Call) -> frames.Answer | None:
        answer = await view.handler(call)  # None, and the call as it was, where no view is named
        if answer is not None:
            return answer
        if other_here is not None and not other_here(call.frame or _frame(call)):
            return None
        if other.picks is not None and not await other.picks(call):
            return None
        return await other.handler(call)

    if view_here is None or other_here is None:
        return Served(handle)
    return Served(handle, lambda frame: view_here(frame) or other_here(frame))


def _frame(call: Call) -> memoryview:
    return memoryview(frames.request(call.key, call.version, call.correlation_id, call.client_id, call.message))[4:]
