"""Requests that list several groups: they are split by group, and the responses are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions.message_classes import copied
from kafka_share_proxy.wire.definitions.messages import Message

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Splits:
    """List in the requests of one API, and the list in its responses."""

    field: str
    """Name of the list in the request."""
    group_of: Callable[[Any], str | None]
    """Function from a list element to its group. None if it is not a group."""
    responses: str
    """Name of the list in the response."""
    responded: Callable[[Any], Any]
    """Function from a response element to its key, equal to `requested` of the request's element."""
    requested: Callable[[Any], Any]

    def entries(self, request: Message) -> Sequence[Any]:
        return getattr(request, self.field) or ()

    def groups(self, request: Message) -> list[str]:
        return [name for entry in self.entries(request) if (name := self.group_of(entry)) is not None]

    def about(self, call: Call[M], entries: Sequence[Any]) -> Call[M]:
        """Return the call with only these list elements."""
        message = copied(call.message)
        setattr(message, self.field, list(entries))
        return replace(call, message=message)

    async def joined(self, call: Call[Message], responses: Sequence[R]) -> R:
        """Return the first response, extended by the elements of the others, in the order of the request."""
        entries = [entry for response in responses for entry in getattr(response, self.responses) or ()]
        ordered = await call.work.in_order(map(self.requested, self.entries(call.message)), entries, self.responded)
        setattr(responses[0], self.responses, ordered)
        return responses[0]
