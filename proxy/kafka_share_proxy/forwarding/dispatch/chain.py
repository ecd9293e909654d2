"""Combine several features that handle the same API into a chain that ends at the broker.

The first feature that returns a response ends the chain. One that returns None leaves the request unchanged to the
next. To change the response of the rest of the chain, a handler calls `next_response`, which returns the decoded
response to the message in its current form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup, Matcher, any_of
from kafka_share_proxy.forwarding.served.interfaces import Call, SynchronousHandler, never_selected
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
    if call.rest_of_chain is not None:
        response = await call.rest_of_chain(replace(call, frame=None, rest_of_chain=None))
        if response is not None:
            return await decoded(call, response)
    return await send_upstream(call, call.message)


def _chained(links: Sequence[Served]) -> Served:
    if len(links) == 1:
        return links[0]
    kinds = tuple(link.wants for link in links if link.wants is not None)
    handler = partial(_first_response, tuple(links))
    if len(kinds) < len(links):
        return Served(handler)
    return Served(handler, any_of(kinds), synchronous_handler=_synchronous_handler(links))


def _synchronous_handler(links: Sequence[Served]) -> SynchronousHandler | None:
    """Return the fast path of the last link, for requests that no earlier link wants."""
    kinds, synchronous_handler = [link.wants for link in links[:-1]], links[-1].synchronous_handler
    if synchronous_handler is None or any(link.picks is not None for link in links):
        return None
    by_group = [kind for kind in kinds if isinstance(kind, ByKnownGroup)]
    if len(by_group) < len(kinds):
        return None  # it would take a second read of the request to know
    return _unless_claimed(by_group, synchronous_handler) if by_group else synchronous_handler


def _unless_claimed(earlier: Sequence[ByKnownGroup], synchronous_handler: SynchronousHandler) -> SynchronousHandler:
    """Exclude requests of these earlier features, by their group or by a word in them.

    One closure for both: each call on this path costs microseconds if the interpreter has left the caches.
    """
    groups = [group for match in earlier for group in match.groups]
    unless = [collection for match in earlier for collection in match.unless]
    word_matches = tuple(match for match in earlier if match.words)
    words = b"|".join(re.escape(word) for match in word_matches for word in match.words)
    has_word = re.compile(words).search if words else None
    is_claimed = _by_word(word_matches)

    def is_selected(group_id: str) -> bool:
        for group in groups:
            if group_id in group:
                return True
        return any(unless)

    def take(
        connection: SynchronousFastPath,
        frame: memoryview,
        request: Request,
        is_selected_before: Callable[[str], bool] = never_selected,
    ) -> bool:
        if has_word is not None and has_word(frame) is not None and is_claimed(frame, request):
            return False
        if is_selected_before is never_selected:
            return synchronous_handler(connection, frame, request, is_selected)
        return synchronous_handler(
            connection, frame, request, lambda group: is_selected_before(group) or is_selected(group)
        )

    return take


def _by_word(word_matches: tuple[ByKnownGroup, ...]) -> Callable[[memoryview, Request], bool]:
    """Return a function that is true for requests of these features."""
    matchers_by_api: dict[tuple[int, int], Sequence[Matcher]] = {}

    def is_claimed(frame: memoryview, request: Request) -> bool:
        api = request.key, request.version
        exact_matchers = matchers_by_api.get(api)
        if exact_matchers is None:
            exact_matchers = matchers_by_api[api] = [match.exact_match.matcher(*api) for match in word_matches]
        return any(matcher(frame[SIZE.size :]) for matcher in exact_matchers)

    return is_claimed


async def _first_response(links: tuple[Served, ...], call: Call[Message]) -> ResponseFrame | Message | None:
    for index, link in enumerate(links):
        if not await _wants(link, call):
            continue
        later_links = links[index + 1 :]
        call.rest_of_chain = partial(_first_response, later_links) if later_links else None
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
