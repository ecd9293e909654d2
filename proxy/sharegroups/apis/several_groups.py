"""Requests that name several groups: taken apart by group, and their answers put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.forwarding.interfaces import Call
from proxy.sharegroups.apis.group_configs import GROUP
from proxy.wire import frames


@dataclass(frozen=True, slots=True)
class Several:
    """The shape of one API."""

    field: str
    """Of the request: the list."""
    group_of: Callable[[Any], str | None]
    """The group of an element of it; None for what is no group."""
    answers: str
    """Of the response: the list."""
    answered: Callable[[Any], Any]
    """What an element of that is about, as `asked` tells it of the request's."""
    asked: Callable[[Any], Any]

    def entries(self, request: Any) -> Sequence[Any]:
        """What a request lists."""
        return getattr(request, self.field) or ()

    def groups(self, request: Any) -> list[str]:
        """The groups among it."""
        return [name for entry in self.entries(request) if (name := self.group_of(entry)) is not None]

    def about(self, call: Call, entries: Sequence[Any]) -> Call:
        """The same call about these entries only."""
        message = call.message
        fields = {name: getattr(message, name) for name in type(message).__slots__ if name != "unknown_tags"}
        return replace(call, message=type(message)(**fields | {self.field: list(entries)}))

    async def joined(self, call: Call, answers: Sequence[Any]) -> Any:
        """The first of these answers, with what all of them list, in the order of the request."""
        found = [entry for answer in answers for entry in getattr(answer, self.answers) or ()]
        ordered = await call.work.in_order(map(self.asked, self.entries(call.message)), found, self.answered)
        setattr(answers[0], self.answers, ordered)
        return answers[0]


async def answers_of(call: Call, parts: Iterable[frames.Answer | None]) -> list[Any]:
    """Response frames of handlers, decoded."""
    key, version = call.key, call.version
    return [
        await call.work.drive(frames.decode_response_in_slices(key, version, memoryview(bytes(part or b""))[4:]))
        for part in parts
    ]


def _same(name: str) -> str:
    return name


def _group_id(entry: Any) -> str:
    return str(entry.group_id)


def _resource(entry: Any) -> tuple[int, str]:
    return entry.resource_type, entry.resource_name


def _group_resource(entry: Any) -> str | None:
    return entry.resource_name if entry.resource_type == GROUP else None


_CHANGED = Several("resources", _group_resource, "responses", _resource, _resource)

SEVERAL: Mapping[int, Several] = {
    32: Several("resources", _group_resource, "results", _resource, _resource),
    33: _CHANGED,
    42: Several("groups_names", _same, "results", _group_id, _same),
    44: _CHANGED,
    77: Several("group_ids", _same, "groups", _group_id, _same),
    90: Several("groups", _group_id, "groups", _group_id, _group_id),
}
"""API key -> its shape: DescribeConfigs, AlterConfigs, DeleteGroups, IncrementalAlterConfigs, ShareGroupDescribe,
DescribeShareGroupOffsets."""
