"""Error codes of any response, found from the message definitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec


def error_codes(response: Message) -> Iterator[int]:
    """Yield every error code other than 0."""
    kind: Any = type(response)
    for attribute in _plain(kind):
        if (code := getattr(response, attribute)) != 0:
            yield code
    for attribute in _nested(kind):
        for entry in getattr(response, attribute) or ():
            yield from error_codes(entry)


@cache
def _plain(kind: Any) -> tuple[str, ...]:
    return tuple(spec.attribute for spec in kind.SPEC.fields if _is_code(spec))


@cache
def _nested(kind: Any) -> tuple[str, ...]:
    arrays = ((spec.attribute, spec.struct) for spec in kind.SPEC.fields if spec.is_array)
    return tuple(attribute for attribute, nested in arrays if nested is not None and _has_code(nested))


def _has_code(struct: StructSpec) -> bool:
    return any(_is_code(spec) or (spec.struct is not None and _has_code(spec.struct)) for spec in struct.fields)


def _is_code(spec: FieldSpec) -> bool:
    return spec.type == "int16" and spec.name.endswith("ErrorCode")
