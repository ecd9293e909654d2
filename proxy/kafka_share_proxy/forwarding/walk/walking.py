"""The walk over frame boundaries: in C if it was built, otherwise the Python fallback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_share_proxy.wire import kernels

BUILT_VERSION = 3
"""`VERSION` of the extension that matches this file. Another one is not used."""

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.walk.walk import Pending, RequestWalk, ResponseWalk, Table, room

    KERNEL = kernels.choose("forwarding.walk._walk", None, BUILT_VERSION)
else:
    try:
        from kafka_share_proxy.forwarding.walk import _walk
    except ImportError:  # no compiler was available at installation
        _walk = None

    KERNEL = kernels.choose("forwarding.walk._walk", _walk, BUILT_VERSION)
    if KERNEL == "c":
        from kafka_share_proxy.forwarding.walk._walk import Pending, RequestWalk, ResponseWalk, Table, room
    else:
        from kafka_share_proxy.forwarding.walk.walk import Pending, RequestWalk, ResponseWalk, Table, room

__all__ = ["KERNEL", "Pending", "RequestWalk", "ResponseWalk", "Table", "room"]
