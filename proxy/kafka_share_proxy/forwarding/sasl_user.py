"""User name in a SaslAuthenticate request, for operators. The broker judges it; rights never depend on it."""

from __future__ import annotations

import re
from typing import NamedTuple

from kafka_share_proxy.forwarding.client_software import small_request

NAME_MAX = 255
"""Maximum characters of a name."""
PLAIN_PARTS = 3
"""Identity to act as, user and password, with NUL between (RFC 4616)."""
_SCRAM = re.compile(rb"[nyp][^,]*,[^,]*,n=([^,]+),r=")
"""First message of a SCRAM client (RFC 5802, 7)."""


class SaslUser(NamedTuple):
    """Name that a client claims, and how many responses without error prove it."""

    name: str
    rounds: int


def read(frame: memoryview) -> SaslUser | None:
    """Return the name in a request without its size. None if it has none, as in later rounds."""
    request = small_request(frame)
    return None if request is None else user_of(bytes(request[1].auth_bytes))


def user_of(token: bytes) -> SaslUser | None:
    if (scram := _SCRAM.match(token)) is not None:
        return SaslUser(_text(scram[1].replace(b"=2C", b",").replace(b"=3D", b"=")), 2)
    parts = token.split(b"\0")
    is_plain = len(parts) == PLAIN_PARTS
    return SaslUser(_text(parts[1]), 1) if is_plain else None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")[:NAME_MAX]
