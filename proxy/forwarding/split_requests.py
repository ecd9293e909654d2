"""Requests that list several groups: taken apart by group, and their answers put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.forwarding.interfaces import Call


@dataclass(frozen=True, slots=True)
class Splits:
    """The list in requests of one API, and the list in its responses."""

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
