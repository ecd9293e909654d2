"""Client id and software of a connection, from the ApiVersions requests that clients send first (KIP-511)."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.errors import RemoteProtocolError

FRAME_BYTES_MAX = 4096
"""Larger requests are not read. The name and version of software have at most 249 characters each, and tokens of
OAUTHBEARER name a principal that the broker chooses.
"""


class ClientSoftware(NamedTuple):
    """Description that a client gives of itself."""

    client_id: str
    name: str = ""
    version: str = ""


def read(frame: memoryview) -> ClientSoftware | None:
    """Return what an ApiVersions request without its size says. None if it is too large or cannot be read."""
    request = small_request(frame)
    if request is None:
        return None
    header, message = request
    return ClientSoftware(header.client_id or "", message.client_software_name, message.client_software_version)


def small_request(frame: memoryview) -> tuple[RequestHeader, Any] | None:
    """Return a request that clients describe themselves with. None if it is too large or cannot be read."""
    if len(frame) > FRAME_BYTES_MAX:
        return None
    try:
        return frames.decode_request(frame)
    except RemoteProtocolError:
        return None  # the broker says what is wrong with it
