"""The walk over frame boundaries in C where it was built, else its twin in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.forwarding.walk import AnswerWalk, Pending, RequestWalk, Table, room

    IN_C = True
else:
    try:
        from proxy.forwarding._walk import AnswerWalk, Pending, RequestWalk, Table, room

        IN_C = True
    except ImportError:
        from proxy.forwarding.walk import AnswerWalk, Pending, RequestWalk, Table, room

        IN_C = False

__all__ = ["IN_C", "AnswerWalk", "Pending", "RequestWalk", "Table", "room"]
