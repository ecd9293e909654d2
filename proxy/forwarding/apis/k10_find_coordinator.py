"""FindCoordinator (key 10): always asked of the broker, the coordinator's address rewritten.

Behaviour
- The request's key type cannot tell a share group from another (both are type 0), so nothing is answered here.
- No coordinator (node -1, empty host) passes unchanged.
- A coordinator whose listener cannot be bound becomes COORDINATOR_NOT_AVAILABLE: the client asks again later.
- One node in the answer below the version that batches keys, a list from there on (KIP-699); told by the fields.
- A long request, which may have very many keys, is asked of the broker in parts: rewriting one answer to all of them
  would keep the loop for a second and more.
"""

from __future__ import annotations

from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.address_rewriting import has_place
from proxy.forwarding.ask_and_reply import ask, replied, told
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.early_looks import LongerThan
from proxy.forwarding.forwarded_api import ForwardedApi
from proxy.forwarding.interfaces import Call
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import UNKNOWN_NODE

KEY = ApiKey.FIND_COORDINATOR

LONG_BYTES = 16 << 10
"""A request above this is asked in parts."""
KEYS_AT_ONCE = 500

_MESSAGE = "The coordinator cannot be reached through this proxy at the moment."


def repair(answer: messages.FindCoordinatorResponse, book: AddressBook) -> None:
    """Give every coordinator our address, or say that there is none just now."""
    for entry in answer.coordinators or (answer,):
        if not has_place(entry, book):
            entry.error_code, entry.error_message = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), _MESSAGE
            entry.node_id, entry.host, entry.port = UNKNOWN_NODE, "", -1


async def handle(call: Call[messages.FindCoordinatorRequest], book: AddressBook) -> bytes | None:
    """A long request: the broker's answers to its parts, as one."""
    request = call.message
    keys = request.coordinator_keys
    if not keys:
        return None  # one long key, or no list yet in this version
    answer = messages.FindCoordinatorResponse(coordinators=[])
    for start in range(0, len(keys), KEYS_AT_ONCE):
        request.coordinator_keys = keys[start : start + KEYS_AT_ONCE]
        part = told(
            messages.FindCoordinatorResponse, call.version, await ask(call.connection, KEY, call.version, request)
        )
        repair(part, book)
        answer.throttle_time_ms = max(answer.throttle_time_ms, part.throttle_time_ms)
        answer.coordinators.extend(part.coordinators or ())
        await call.work.pause()
    return await replied(call, answer)


IN_PARTS = DeclaredApi(key=KEY, handle=handle, wants=lambda _: LongerThan(LONG_BYTES))
"""Long requests are asked of the broker in parts, whatever else is served here."""


API = ForwardedApi(key=KEY, repair=repair, answers_repeat=True)
