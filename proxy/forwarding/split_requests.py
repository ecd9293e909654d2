"""Requests that list several groups: taken apart by group, and their answers put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from proxy.forwarding.interfaces import Call
from proxy.wire.message_classes import copied
from proxy.wire.messages import Message

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)


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

    def entries(self, request: Message) -> Sequence[Any]:
        """What a request lists."""
        return getattr(request, self.field) or ()

    def groups(self, request: Message) -> list[str]:
        """The groups among it."""
        return [name for entry in self.entries(request) if (name := self.group_of(entry)) is not None]

    def about(self, call: Call[M], entries: Sequence[Any]) -> Call[M]:
        """The same call about these entries only."""
        message = copied(call.message)
        setattr(message, self.field, list(entries))
        return replace(call, message=message)

    async def joined(self, call: Call[Message], answers: Sequence[R]) -> R:
        """The first of these answers, with what all of them list, in the order of the request."""
        found = [entry for answer in answers for entry in getattr(answer, self.answers) or ()]
        ordered = await call.work.in_order(map(self.asked, self.entries(call.message)), found, self.answered)
        setattr(answers[0], self.answers, ordered)
        return answers[0]
