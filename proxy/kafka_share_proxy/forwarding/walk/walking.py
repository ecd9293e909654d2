"""The walk over frame boundaries: in C if it was built, otherwise the Python fallback."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.walk.walk import Pending, RequestWalk, ResponseWalk, Table, room

    IN_C = True
else:
    try:
        from kafka_share_proxy.forwarding.walk._walk import Pending, RequestWalk, ResponseWalk, Table, room

        IN_C = True
    except ImportError:
        from kafka_share_proxy.forwarding.walk.walk import Pending, RequestWalk, ResponseWalk, Table, room

        IN_C = False

__all__ = ["IN_C", "Pending", "RequestWalk", "ResponseWalk", "Table", "room"]
