"""Messages that begin with a number of two bytes.

Stored values, and messages between proxies, begin with their version. Keys of stored records begin with their type.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TypeVar

from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import RemoteProtocolError

M = TypeVar("M", bound=Message)

NUMBER_BYTES = 2


def number_in(data: bytes) -> int:
    """Return the number before a message."""
    return int.from_bytes(data[:NUMBER_BYTES], "big", signed=True)


def encode(message: Message, version: int, number: int | None = None) -> bytes:
    """Return the message after `number`. None: after its version."""
    body = registry.codec_of(type(message), version).encode(message)
    return (version if number is None else number).to_bytes(NUMBER_BYTES, "big", signed=True) + body


def decode(kind: type[M], data: bytes, versions: Container[int]) -> M:
    """Decode a message after its version. Raises RemoteProtocolError, also if the version is none of these."""
    version = number_in(data)
    if version not in versions or len(data) < NUMBER_BYTES:
        raise RemoteProtocolError(f"{kind.__name__} of version {version} is not known here")
    return decode_body(kind, data, version)


def decode_body(kind: type[M], data: bytes, version: int) -> M:
    """Decode a message after any number, as the key of a stored record. Raises RemoteProtocolError."""
    return registry.codec_of(kind, version).decode(data, NUMBER_BYTES)
