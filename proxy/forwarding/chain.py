"""Several features that have a say in one API: they stand one behind the other, and the broker stands behind the last.

Each is asked whether it wants the request. The first that gives an answer ends it; who gives None leaves the request,
as it came, to the next. A handler that wants to change what is behind it asks `answer_behind`: it gets the decoded
answer of the next feature that wants the request, or of the broker, to the message as it is then, and may amend it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from proxy.forwarding.ask_and_reply import ask_upstream, decoded
from proxy.forwarding.declared_api import Served
from proxy.forwarding.early_looks import ByKnownGroup, any_of
from proxy.forwarding.interfaces import AtOnce, Call
from proxy.wire import frames
from proxy.wire.frames import Answer
from proxy.wire.messages import Message, RequestMessage

R = TypeVar("R", bound=Message)
"""The class of the answer."""


def in_order(features: Iterable[Mapping[int, Served]]) -> dict[int, Served]:
    """API key -> all that have a say in it, as one. Each feature: API key -> what it serves; the first goes first."""
    found: dict[int, list[Served]] = {}
    for feature in features:
        for key, served in feature.items():
            found.setdefault(key, []).append(served)
    return {key: _chained(links) for key, links in found.items()}


async def answer_behind(call: Call[RequestMessage[R]]) -> R:
    """The decoded answer of those behind this handler to `call.message`, as it is now. Raises UpstreamLost."""
    answer = None if call.behind is None else await call.behind(replace(call, frame=None, behind=None))
    return await ask_upstream(call, call.message) if answer is None else await decoded(call, answer)


def _chained(links: Sequence[Served]) -> Served:
    if len(links) == 1:
        return links[0]
    looks = tuple(link.wants for link in links if link.wants is not None)
    handler = partial(_first_answer, tuple(links))
    if len(looks) < len(links):
        return Served(handler)
    return Served(handler, any_of(looks), at_once=_at_once(links))


def _at_once(links: Sequence[Served]) -> AtOnce | None:
    """The short way of the last link, for requests that none in front of it wants."""
    looks, at_once = [link.wants for link in links[:-1]], links[-1].at_once
    if at_once is None or any(link.picks is not None for link in links):
        return None
    known = [look for look in looks if isinstance(look, ByKnownGroup)]
    if len(known) < len(looks) or any(look.words for look in known):
        return None  # nobody could tell without reading the request once more
    groups = [group for look in known for group in look.groups]
    unless = [one for look in known for one in look.unless]

    def is_wanted(group_id: str) -> bool:
        for group in groups:
            if group_id in group:
                return True
        return any(unless)

    return partial(at_once, is_wanted_before=is_wanted)


async def _first_answer(links: tuple[Served, ...], call: Call[Message]) -> Answer | Message | None:
    for place, link in enumerate(links):
        if not await _wants(link, call):
            continue
        behind = links[place + 1 :]
        call.behind = partial(_first_answer, behind) if behind else None
        answer = await link.handler(call)
        if answer is not None:
            return answer
    return None


async def _wants(link: Served, call: Call[Message]) -> bool:
    if link.picks is not None:
        return await link.picks(call)
    return link.wants is None or link.wants.look(call.key, call.version)(_frame(call))


def _frame(call: Call[Message]) -> memoryview:
    """The request as bytes, without size: as it came, or as it is now where a handler has altered it."""
    if call.frame is not None:
        return call.frame
    return memoryview(frames.request(call.key, call.version, call.correlation_id, call.client_id, call.message))[4:]
