"""Combine several features that handle the same API into a chain that ends at the broker.

The first feature that returns a response ends the chain. One that returns None leaves the request unchanged to the
next. To change the response of the rest of the chain, a handler calls `next_response`, which returns the decoded
response to the message in its current form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup, Matcher, any_of
from kafka_share_proxy.forwarding.served.interfaces import AtOnce, Call, never_wanted
from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath
from kafka_share_proxy.forwarding.served.upstream_requests import decoded, send_upstream
from kafka_share_proxy.loop.interfaces import Request
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.frame_sizes import SIZE
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage

R = TypeVar("R", bound=Message)


def in_order(features: Iterable[Mapping[int, Served]]) -> dict[int, Served]:
    """Combine the features into one entry per API key, earlier features first."""
    by_key: dict[int, list[Served]] = {}
    for feature in features:
        for key, served in feature.items():
            by_key.setdefault(key, []).append(served)
    return {key: _chained(links) for key, links in by_key.items()}


async def next_response(call: Call[RequestMessage[R]]) -> R:
    """Return the decoded response of the rest of the chain to `call.message`. Raises UpstreamLost."""
    response = None if call.behind is None else await call.behind(replace(call, frame=None, behind=None))
    return await send_upstream(call, call.message) if response is None else await decoded(call, response)


def _chained(links: Sequence[Served]) -> Served:
    if len(links) == 1:
        return links[0]
    kinds = tuple(link.wants for link in links if link.wants is not None)
    handler = partial(_first_response, tuple(links))
    if len(kinds) < len(links):
        return Served(handler)
    return Served(handler, any_of(kinds), at_once=_at_once(links))


def _at_once(links: Sequence[Served]) -> AtOnce | None:
    """Return the fast path of the last link, for requests that no earlier link wants."""
    kinds, at_once = [link.wants for link in links[:-1]], links[-1].at_once
    if at_once is None or any(link.picks is not None for link in links):
        return None
    by_group = [kind for kind in kinds if isinstance(kind, ByKnownGroup)]
    if len(by_group) < len(kinds):
        return None  # it would take a second read of the request to know
    worded = tuple(kind for kind in by_group if kind.words)
    if worded:
        at_once = _unless_worded(worded, at_once)
    groups = [group for kind in by_group for group in kind.groups]
    unless = [one for kind in by_group for one in kind.unless]
    return _unless_grouped(groups, unless, at_once) if groups or unless else at_once


def _unless_grouped(groups: Sequence[Mapping[str, Any]], unless: Sequence[Sized], at_once: AtOnce) -> AtOnce:
    """Exclude requests about one of these groups."""

    def is_wanted(group_id: str) -> bool:
        for group in groups:
            if group_id in group:
                return True
        return any(unless)

    def take(
        connection: SynchronousFastPath,
        frame: memoryview,
        request: Request,
        is_wanted_before: Callable[[str], bool] = never_wanted,
    ) -> bool:
        if is_wanted_before is never_wanted:
            return at_once(connection, frame, request, is_wanted)
        return at_once(connection, frame, request, lambda group: is_wanted_before(group) or is_wanted(group))

    return take


def _unless_worded(kinds: tuple[ByKnownGroup, ...], at_once: AtOnce) -> AtOnce:
    """Exclude requests that one of these kinds wants because of a word in them."""
    has_word = re.compile(b"|".join(re.escape(word) for kind in kinds for word in kind.words)).search
    made: dict[tuple[int, int], Sequence[Matcher]] = {}

    def is_wanted(frame: memoryview, request: Request) -> bool:
        api = request.key, request.version
        exactly = made.get(api)
        if exactly is None:
            exactly = made[api] = [kind.exactly.matcher(*api) for kind in kinds]
        return any(matcher(frame[SIZE.size :]) for matcher in exactly)

    def take(
        connection: SynchronousFastPath,
        frame: memoryview,
        request: Request,
        is_wanted_before: Callable[[str], bool] = never_wanted,
    ) -> bool:
        if has_word(frame) is not None and is_wanted(frame, request):
            return False
        return at_once(connection, frame, request, is_wanted_before)

    return take


async def _first_response(links: tuple[Served, ...], call: Call[Message]) -> ResponseFrame | Message | None:
    for index, link in enumerate(links):
        if not await _wants(link, call):
            continue
        behind = links[index + 1 :]
        call.behind = partial(_first_response, behind) if behind else None
        response = await link.handler(call)
        if response is not None:
            return response
    return None


async def _wants(link: Served, call: Call[Message]) -> bool:
    if link.picks is not None:
        return await link.picks(call)
    return link.wants is None or link.wants.matcher(call.key, call.version)(_frame(call))


def _frame(call: Call[Message]) -> memoryview:
    """Return the request frame without size: as received, or encoded again if a handler changed the message."""
    if call.frame is not None:
        return call.frame
    return memoryview(frames.request(call.key, call.version, call.correlation_id, call.client_id, call.message))[4:]
