"""ShareFetch (key 78) when the brokers serve it: its answer is collected whole, so the request may not ask for more
than that.

Its answer names new leaders behind the records, so it cannot be passed on as it comes. MaxBytes is lowered in place;
brokers exceed it by at most one record batch, for which room is kept. 0 stays 0: it is what a request for renewal or
with acknowledgements only must have (KIP-1222).
"""

from __future__ import annotations

from struct import Struct

from proxy.forwarding.address_rewriting import drop_node_endpoints
from proxy.forwarding.forwarded_api import ForwardedApi
from proxy.forwarding.routes import Amend
from proxy.wire import prefixes
from proxy.wire.api_key import ApiKey
from proxy.wire.prefixes import PlaceOf

KEY = ApiKey.SHARE_FETCH

ROOM = 0.75
"""Share of the collect limit that may be asked for; the rest is for the batch that exceeds it, and the other fields."""

_MAX_BYTES = Struct(">i")


def limit_max_bytes(version: int, collected_bytes: int) -> Amend:
    """An amendment of requests that lowers MaxBytes; RemoteProtocolError where a request is too short to have it."""
    highest = int(collected_bytes * ROOM)
    place = prefixes.of_request(KEY, version, PlaceOf("MaxBytes"))

    def amend(frame: memoryview) -> None:
        at = place(frame, len(frame))
        if _MAX_BYTES.unpack_from(frame, at)[0] > highest:
            _MAX_BYTES.pack_into(frame, at, highest)

    return amend


API = ForwardedApi(
    key=KEY,
    repair=drop_node_endpoints,
    amend=lambda version, parts: limit_max_bytes(version, parts.limits.collected_bytes),
)
