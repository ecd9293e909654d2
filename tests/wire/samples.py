"""Messages with generated values: every field of one version is set, edges come up often, the seed decides all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from kafka_share_proxy.wire.definitions import registry, specs
from kafka_share_proxy.wire.definitions.specs import FieldSpec, MessageSpec, StructSpec

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
STRINGS = ("", "a", "topic-1", "Grüße, 世界 🦜", "x" * 126, "x" * 127, "y" * 128, "z" * 300)
BLOBS = (b"", b"\0", b"\xff" * 126, b"\x80" * 127, bytes(range(256)))
UNKNOWN_TAGS = ((9_000, b""), (9_001, b"kept"), (2**31 - 1, b"\0" * 200))
"""Tags that no definition uses."""

Restrict = Callable[[FieldSpec, Any, Any], Any]
"""(field, hint of the structure, value drawn) -> value to use."""


def _as_drawn(_field: FieldSpec, _hint: Any, value: Any) -> Any:
    return value


class Samples:
    """Draws messages. `restrict` may replace what was drawn for a scalar; `hint` goes with it from struct to struct."""

    def __init__(self, seed: object, restrict: Restrict = _as_drawn, tags: bool = False) -> None:
        self._random = random.Random(str(seed))
        self._restrict = restrict
        self._tags = tags

    def message(self, spec: MessageSpec, version: int, hint: Any = None) -> Any:
        """One message of a version; fields the version lacks stay at their defaults."""
        self._spec, self._version = spec, version
        self._class = registry.message(spec.name)
        return self._struct(spec.root, self._class, hint)

    def _struct(self, struct: StructSpec, message_class: type[Any], hint: Any) -> Any:
        values = {}
        for index, field in enumerate(present(struct, self._version)):
            values[field.attribute] = self._field(field, hint and hint[index])
        if self._tags and self._version in self._spec.flexible and self._random.random() < 0.5:
            values["unknown_tags"] = tuple(self._random.sample(UNKNOWN_TAGS, self._random.randint(1, 3)))
            values["unknown_tags"] = tuple(sorted(values["unknown_tags"]))
        return message_class(**values)

    def _field(self, field: FieldSpec, hint: Any) -> Any:
        if field.is_nullable(self._version) and not self._random.randrange(4):
            return None
        if not field.is_array:
            return self._single(field, hint)
        count = self._random.choice((0, 1, 1, 2, 3))
        if field.struct is None and not self._random.randrange(12):
            count = self._random.choice((126, 127, 128, 300))
        return [self._single(field, hint) for _ in range(count)]

    def _single(self, field: FieldSpec, hint: Any) -> Any:
        if field.struct is not None:
            return self._struct(field.struct, getattr(self._class, field.struct.name), hint and hint.nested)
        return self._restrict(field, hint, self._scalar(field.type))

    def _scalar(self, kind: str) -> Any:
        draw = self._random
        if kind in BITS:
            top = 1 << (BITS[kind] - 1)
            return draw.choice((0, 1, -1, 127, -128, top - 1, -top, draw.randrange(-top, top)))
        if kind in {"uint16", "uint32"}:
            return draw.choice((0, 1, 9092, 0xFFFF))
        make: dict[str, Callable[[], Any]] = {
            "bool": lambda: draw.random() < 0.5,
            "float64": lambda: draw.choice((0.0, -1.5, 1e300, draw.random())),
            "uuid": lambda: draw.choice((bytes(16), draw.randbytes(16))),
            "string": lambda: draw.choice(STRINGS),
            "bytes": lambda: draw.choice(BLOBS),
            "records": lambda: draw.choice(BLOBS),
        }
        return make[kind]()


def present(struct: StructSpec, version: int) -> list[FieldSpec]:
    """The fields of a version, tagged ones included, in the order of the definition."""
    return [field for field in struct.fields if version in field.versions]


def every_codec() -> Iterator[tuple[str, int]]:
    """(name, version) of every message of Kafka that has a version."""
    for name in specs.names():
        spec = specs.load(name)
        for version in range(spec.valid.first, spec.valid.last + 1):
            yield name, version
