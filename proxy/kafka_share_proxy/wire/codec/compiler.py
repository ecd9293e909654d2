"""Codecs of messages, generated from their definition and version at first use and then cached.

Exceptions of the generated functions on invalid bytes (IndexError, struct.error, Unicode) become RemoteProtocolError
here, those on invalid message objects of this process LocalProtocolError. Slices: wire/README.md rule 8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from kafka_share_proxy.wire.codec import decoding, encoding
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions.message_classes import Message
from kafka_share_proxy.wire.definitions.specs import MessageSpec
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError, TooManyElements

M = TypeVar("M", bound=Message)

_BAD_BYTES = (IndexError, struct.error, UnicodeDecodeError, RemoteProtocolError)
_BAD_VALUES = (struct.error, TypeError, AttributeError, ValueError, OverflowError, LocalProtocolError)


JOINED_BYTES = 64 << 10
"""Maximum bytes of parts that are joined first. Copying more costs more than it saves."""


def _join_small(parts: list[Any], start: int) -> None:
    """Replace parts[start:] by one part if all of them are bytes, and few."""
    added = parts[start:]
    if len(added) > 1 and set(map(type, added)) == {bytes} and sum(map(len, added)) <= JOINED_BYTES:
        parts[start:] = (b"".join(added),)


class Codec(Generic[M]):
    """Decoder and encoder of one message in one version."""

    __slots__ = (
        "_decode",
        "_decode_in_slices",
        "_encode",
        "_encode_in_slices",
        "_views",
        "message_class",
        "spec",
        "version",
    )

    def __init__(self, spec: MessageSpec, version: int, message_class: type[M]) -> None:
        self.spec = spec
        self.version = version
        self.message_class = message_class
        self._views = decoding.has_views(spec)
        self._decode: Callable[..., Any] | None = None
        self._encode: Callable[..., Any] | None = None
        self._decode_in_slices: Callable[..., Any] | None = None
        self._encode_in_slices: Callable[..., Any] | None = None

    def decode(self, buffer: Buffer, offset: int = 0) -> M:
        """Raises RemoteProtocolError.

        bytes and records become memoryviews: of `buffer` itself if the message carries records, else of a copy.
        """
        message, position = self.decode_prefix(buffer, offset)
        if position != len(buffer):
            raise RemoteProtocolError(f"{self}: {len(buffer) - position} bytes too many")
        return message

    def decode_prefix(self, buffer: Buffer, offset: int = 0) -> tuple[M, int]:
        """Return (message, position after it)."""
        data, view = self._readable(buffer)
        try:
            decode = self._decode or self._compile_decode()
            message, position = decode(data, view, offset, len(data))
        except _BAD_BYTES as error:
            raise self._unreadable(error) from error
        self._check_end(position, data)
        return message, position

    def decode_in_slices(self, buffer: Buffer, offset: int, elements_max: int) -> Generator[None, None, M]:
        """Decode in slices. Raises TooManyElements beyond `elements_max` array elements."""
        data, view = self._readable(buffer)
        try:
            decode = self._decode_in_slices or self._compile_decode_in_slices()
            message: M
            message, position = yield from decode(data, view, offset, len(data), elements_max)
        except _BAD_BYTES as error:
            raise self._unreadable(error) from error
        self._check_end(position, data)
        if position != len(data):
            raise RemoteProtocolError(f"{self}: {len(data) - position} bytes too many")
        return message

    def encode(self, message: M) -> bytes:
        """Encode the message, without header.

        Raises LocalProtocolError for a wrong type or size, or a field that this version lacks.
        """
        parts: list[Any] = []
        self.encode_into(message, parts)
        return b"".join(parts)

    def encode_into(self, message: M, parts: list[Any]) -> None:
        """Append the encoded parts, without copying records. Raises as `encode`; `parts` is then undefined."""
        if type(message) is not self.message_class:
            raise LocalProtocolError(f"{self}: cannot encode a {type(message).__name__}")
        try:
            (self._encode or self._compile_encode())(message, parts.append)
        except _BAD_VALUES as error:
            raise LocalProtocolError(f"{self}: {error}") from error

    def encode_in_slices(self, message: M, parts: list[Any]) -> Generator[None, None, None]:
        """Encode in slices. The small parts of each are joined in it: 10 ms for the 130,000 of a ListGroups response
        with 18,777 groups, if joined in one step.
        """
        if type(message) is not self.message_class:
            raise LocalProtocolError(f"{self}: cannot encode a {type(message).__name__}")
        encode, joined = self._encode_in_slices or self._compile_encode_in_slices(), len(parts)
        try:
            for _ in encode(message, parts.append):
                _join_small(parts, joined)
                joined = len(parts)
                yield
        except _BAD_VALUES as error:
            raise LocalProtocolError(f"{self}: {error}") from error
        _join_small(parts, joined)

    def __str__(self) -> str:
        return f"{self.spec.name} v{self.version}"

    __repr__ = __str__

    def _readable(self, buffer: Buffer) -> tuple[Buffer, memoryview]:
        if self._views:
            view = memoryview(buffer)
            return view, view
        data = buffer if type(buffer) is bytes else bytes(buffer)
        return data, memoryview(data)

    def _unreadable(self, error: Exception) -> RemoteProtocolError:
        if isinstance(error, RemoteProtocolError):
            kind = TooManyElements if isinstance(error, TooManyElements) else RemoteProtocolError
            return kind(f"{self}: {error}")
        reason = "a string is not UTF-8" if isinstance(error, UnicodeDecodeError) else "the message ends too early"
        return RemoteProtocolError(f"{self}: {reason}")

    def _check_end(self, position: int, data: Buffer) -> None:
        if position > len(data):
            raise RemoteProtocolError(f"{self}: the message ends too early")

    def _classes(self) -> dict[str, type[Any]]:
        nested = {name: getattr(self.message_class, name) for name in self.spec.structs}
        return {**nested, self.spec.name: self.message_class}

    def _compile_decode(self) -> Callable[..., Any]:
        self._decode = decoding.generate(self.spec, self.version, self._classes()).function("decode")
        return self._decode

    def _compile_decode_in_slices(self) -> Callable[..., Any]:
        source = decoding.generate(self.spec, self.version, self._classes(), in_slices=True)
        self._decode_in_slices = source.function("decode")
        return self._decode_in_slices

    def _compile_encode_in_slices(self) -> Callable[..., Any]:
        source = encoding.generate(self.spec, self.version, self._classes(), in_slices=True)
        self._encode_in_slices = source.function("encode")
        return self._encode_in_slices

    def _compile_encode(self) -> Callable[..., Any]:
        self._encode = encoding.generate(self.spec, self.version, self._classes()).function("encode")
        return self._encode
