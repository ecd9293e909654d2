"""Routing of a request: to the owner of its group, to the broker, or back to the client with an error.

Rules: commits/README.md 3 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from kafka_share_proxy.commits.apis.commit_responses import request_of, response_of, set_codes
from kafka_share_proxy.commits.refusals import report_refusals
from kafka_share_proxy.commits.requested_commits import requested_commits
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.routes import Handler
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream
from kafka_share_proxy.loop.waiting import first_until
from kafka_share_proxy.offsets.commit_text import commit_text_version
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

Q = TypeVar("Q", "messages.OffsetCommitRequest", "messages.TxnOffsetCommitRequest")


def groups_of(api: DeclaredApi[CommitServices], call: Call[Any]) -> Sequence[str]:
    if api.splits is None:
        return (call.message.group_id,)
    return [name for name in api.splits.groups(call.message) if name]


def until_loaded(api: DeclaredApi[CommitServices], handler: Handler, services: CommitServices) -> Handler:
    """Wrap a handler of requests about known groups or with a text."""

    async def handle(call: Call[Any]) -> ResponseFrame | Message | None:
        if await _has_text(services, call):
            return await (_refuse_texts(call, services) if services.off else handler(call))
        names = groups_of(api, call)
        is_certain = await _become_certain(services, names, api.hold_s)
        if not is_certain and api.is_repeated and api.respond_unavailable is not None:
            return await api.respond_unavailable(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "")
        return await handler(call) if any(services.knows(name) for name in names) else None

    return handle


async def _become_certain(services: CommitServices, names: Sequence[str], hold_s: float) -> bool:
    """Wait until it is known of each group whether it has ranges. False if that takes longer than `hold_s`."""
    deadline = services.timers.now() + hold_s
    while any(services.knows(name) is None for name in names):
        if services.timers.now() >= deadline:
            return False
        changed = services.followed.changed()
        try:
            await first_until(services.timers, deadline, changed)
        finally:
            services.followed.forget_waiter(changed)
    return True


async def _has_text(services: CommitServices, call: Call[Message]) -> bool:
    request = call.message
    if not isinstance(request, messages.OffsetCommitRequest | messages.TxnOffsetCommitRequest):
        return False
    if not services.serves(request.group_id):
        return False
    for topic in request.topics or ():
        for entry in topic.partitions or ():
            if commit_text_version(entry.committed_metadata) is not None:
                return True
            await call.work.step()
    return False


async def _refuse_texts(call: Call[Q], services: CommitServices) -> Message:
    commits = await requested_commits(call, services)
    throttle_time_ms = 0
    for requested in commits:
        if commit_text_version(requested.entry.committed_metadata) is not None:
            requested.refuse(ErrorCode.INVALID_REQUEST, f"the topic of ranges cannot be used: {services.off}")
    if forwarded := [requested for requested in commits if requested.code is None]:
        response = await send_upstream(
            call, request_of(call, [(requested, requested.entry) for requested in forwarded])
        )
        set_codes(forwarded, response)
        throttle_time_ms = response.throttle_time_ms
    report_refusals(services, call.message.group_id, commits)
    return response_of(call, call.message.topics, commits, throttle_time_ms)
