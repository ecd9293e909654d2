"""FindCoordinator (key 10): always forwarded, the coordinator's address rewritten.

Behaviour
- The request's key type cannot tell a share group from another (both are type 0), so nothing is answered here.
- No coordinator (node -1, empty host) passes unchanged.
- A coordinator whose listener cannot be bound becomes COORDINATOR_NOT_AVAILABLE: the client asks again later.
- One node in the answer below the version that batches keys, a list from there on (KIP-699); told by the fields.
"""

from __future__ import annotations

from typing import Any

from proxy.apis.rewrites import has_place
from proxy.cluster.addresses import AddressBook
from proxy.errors import ErrorCode
from proxy.values import UNKNOWN_NODE

KEY = 10

_MESSAGE = "The coordinator cannot be reached through this proxy at the moment."


def repair(answer: Any, book: AddressBook) -> None:
    """Give every coordinator our address, or say that there is none just now."""
    for entry in answer.coordinators or (answer,):
        if not has_place(entry, book):
            entry.error_code, entry.error_message = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), _MESSAGE
            entry.node_id, entry.host, entry.port = UNKNOWN_NODE, "", -1
