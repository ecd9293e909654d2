"""FindCoordinator (key 10): always forwarded to the broker, with the coordinator's address rewritten.

Rules: forwarding/README.md 10 and 14. No coordinator (node -1, empty host) is forwarded unchanged. Below the version
that batches keys, the response names one node, from there on a list (KIP-699).
"""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import LongerThan
from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.rewriting.address_rewriting import replace_address
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import decode_response, replied, send_request
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE

KEY = ApiKey.FIND_COORDINATOR

LONG_BYTES = 16 << 10
"""Maximum bytes of a request that is forwarded as a whole."""
KEYS_AT_ONCE = 500

_MESSAGE = "The coordinator cannot be reached through this proxy at the moment."


def repair(response: messages.FindCoordinatorResponse, book: AddressBook) -> None:
    for entry in response.coordinators or (response,):
        if not replace_address(entry, book):
            entry.error_code, entry.error_message = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), _MESSAGE
            entry.node_id, entry.host, entry.port = UNKNOWN_NODE, "", -1


async def handle(call: Call[messages.FindCoordinatorRequest], book: AddressBook) -> bytes | None:
    request = call.message
    keys = request.coordinator_keys
    if not keys:
        return None  # one long key, or no list yet in this version
    response = messages.FindCoordinatorResponse(coordinators=[])
    for start in range(0, len(keys), KEYS_AT_ONCE):
        request.coordinator_keys = keys[start : start + KEYS_AT_ONCE]
        part = decode_response(
            messages.FindCoordinatorResponse,
            call.version,
            await send_request(call.connection, KEY, call.version, request),
        )
        repair(part, book)
        response.throttle_time_ms = max(response.throttle_time_ms, part.throttle_time_ms)
        response.coordinators.extend(part.coordinators or ())
        await call.work.pause()
    return await replied(call, response)


IN_PARTS = DeclaredApi(key=KEY, handle=handle, wants=lambda _: LongerThan(LONG_BYTES))
"""Long requests are sent in parts even if nothing else is served here."""


API = ForwardedApi(key=KEY, repair=repair, responses_repeat=True)
