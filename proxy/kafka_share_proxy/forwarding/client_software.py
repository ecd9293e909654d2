"""Client id and software of a connection, from the ApiVersions requests that clients send first (KIP-511)."""

from __future__ import annotations

from typing import NamedTuple

from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.errors import RemoteProtocolError

FRAME_BYTES_MAX = 4096
"""Larger requests are not read. The name and version have at most 249 characters each."""


class ClientSoftware(NamedTuple):
    """Description that a client gives of itself."""

    client_id: str
    name: str = ""
    version: str = ""


def read(frame: memoryview) -> ClientSoftware | None:
    """Return what an ApiVersions request without its size says. None if it is too large or cannot be read."""
    if len(frame) > FRAME_BYTES_MAX:
        return None
    try:
        header, message = frames.decode_request(frame)
    except RemoteProtocolError:
        return None  # the broker says what is wrong with it
    return ClientSoftware(header.client_id or "", message.client_software_name, message.client_software_version)
