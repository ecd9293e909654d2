"""ShareFetch (key 78) when the brokers serve it: its answer is collected whole, so the request may not ask for more
than that.

Its answer names new leaders behind the records, so it cannot be passed on as it comes. MaxBytes is lowered in place;
brokers exceed it by at most one record batch, for which room is kept. 0 stays 0: it is what a request for renewal or
with acknowledgements only must have (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812  # named like every other error

from proxy.forwarding.address_rewriting import drop_node_endpoints
from proxy.forwarding.forwarded_api import ForwardedApi
from proxy.forwarding.routes import Route
from proxy.wire import headers
from proxy.wire.errors import RemoteProtocolError

KEY = 78

ROOM = 0.75
"""Share of the collect limit that may be asked for; the rest is for the batch that exceeds it, and the other fields."""

_MAX_BYTES = Struct(">i")
_BEFORE_MAX_BYTES = 3 * 4
"""ShareSessionEpoch, MaxWaitMs, MinBytes."""


def limit_max_bytes(collected_bytes: int) -> Callable[[memoryview], Route | None]:
    """An amendment of requests that lowers MaxBytes; RemoteProtocolError where a request is too short to have it."""
    highest = int(collected_bytes * ROOM)

    def amend(frame: memoryview) -> Route | None:
        _, position = headers.decode_request_header(frame)
        try:
            for _ in ("GroupId", "MemberId"):
                position = _behind_string(frame, position)
            position += _BEFORE_MAX_BYTES
            if _MAX_BYTES.unpack_from(frame, position)[0] > highest:
                _MAX_BYTES.pack_into(frame, position, highest)
        except (IndexError, StructError) as error:
            raise RemoteProtocolError("a ShareFetch request ends too early") from error
        return None

    return amend


def _behind_string(frame: memoryview, position: int) -> int:
    """Where a compact nullable string ends."""
    length = shift = 0
    while True:
        byte = frame[position]
        position += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position + max(length - 1, 0)
        shift += 7


API = ForwardedApi(
    key=KEY,
    repair=drop_node_endpoints,
    amend=lambda _, parts: limit_max_bytes(parts.limits.collected_bytes),
)
