"""Source text of a generated function: lines, unique names, and the objects to which the text refers.

Adjacent fixed-size values are fused into one `Struct`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from kafka_share_proxy.wire.codec import primitives
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES, FieldSpec, MessageSpec, StructSpec

CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""struct codes of the types with a fixed size."""

NUMBERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d"}
"""Types whose arrays are read and written by one Struct, with its codes."""

PAUSE_EVERY = 128
"""Array elements between two pauses of a function that works in slices; a power of two."""


class Source:
    """Source of one function under construction."""

    def __init__(self, spec: MessageSpec, version: int) -> None:
        self.spec = spec
        self.version = version
        self.names: dict[str, Any] = {"P": primitives, "uvarint": primitives.uvarint}
        self.names["read_uvarint"] = primitives.read_uvarint
        self._lines: list[str] = []
        self._depth = 0
        self._counter = 0
        self._min_sizes: dict[str, int] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def begin_slices(self) -> None:
        """Make the function a generator, even if it never pauses."""
        self.line("done = 0")
        with self.block("if done:"):
            self.line("yield")

    def pause(self) -> None:
        """Count one element, and yield after every `PAUSE_EVERY`."""
        self.line("done += 1")
        with self.block(f"if not done & {PAUSE_EVERY - 1}:"):
            self.line("yield")

    def fresh(self, prefix: str) -> str:
        """Return a new variable name."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def struct(self, codes: str, method: str) -> str:
        """Return the name of a method of the Struct with these codes."""
        name = f"{method[0]}_{codes.replace('?', 't')}"
        self.names[name] = getattr(Struct(">" + codes), method)
        return name

    def numbers(self, kind: str, front: str = "") -> str:
        """Return the name of the Structs for arrays of numbers after values with the codes `front`."""
        name = f"N_{front.replace('?', 't')}_{kind}"
        self.names.setdefault(name, primitives.ArrayStructs(NUMBERS[kind], front))
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def function(self, name: str) -> Callable[..., Any]:
        """Compile the source, and return the function of this name."""
        code = compile(self.text(), f"<{self.spec.name} v{self.version}: {name}>", "exec")
        exec(code, self.names)  # noqa: S102  # from our own definitions
        compiled: Callable[..., Any] = self.names[name]
        return compiled

    def is_flexible(self, field: FieldSpec | None = None) -> bool:
        """True if the lengths are compact: of this field, or of the message, whose structures then have tags."""
        flexible = self.spec.flexible if field is None or field.flexible is None else field.flexible
        return self.version in flexible

    def plain_fields(self, struct: StructSpec) -> list[FieldSpec]:
        return [f for f in struct.fields if self.version in f.versions and not f.is_tagged(self.version)]

    def tagged_fields(self, struct: StructSpec) -> list[FieldSpec]:
        if not self.is_flexible():
            return []
        tagged = [f for f in struct.fields if f.is_tagged(self.version)]
        return sorted(tagged, key=lambda field: field.tag)

    def absent_fields(self, struct: StructSpec) -> list[FieldSpec]:
        present = {f.name for f in (*self.plain_fields(struct), *self.tagged_fields(struct))}
        return [f for f in struct.fields if f.name not in present]

    def min_size(self, struct: StructSpec) -> int:
        """Return the minimum size of such a structure in bytes; at least 1, so that counts stay bounded."""
        if struct.name not in self._min_sizes:
            size = sum(self._min_field(field) for field in self.plain_fields(struct))
            self._min_sizes[struct.name] = max(1, size + self.is_flexible())
        return self._min_sizes[struct.name]

    def min_element(self, field: FieldSpec) -> int:
        """Return the minimum size in bytes of a value, or of one element of an array."""
        if field.struct is not None:
            return self.min_size(field.struct)
        if field.type in FIXED_SIZES:
            return FIXED_SIZES[field.type]
        if self.is_flexible(field):
            return 1
        return 2 if field.type == "string" else 4

    def _min_field(self, field: FieldSpec) -> int:
        if field.is_array:
            return 1 if self.is_flexible(field) else 4
        if field.struct is not None and field.is_nullable(self.version):
            return 1
        return self.min_element(field)


class Generator:
    """Base of the generators of code for one message in one version."""

    def __init__(self, spec: MessageSpec, version: int) -> None:
        self.source = Source(spec, version)
        self.spec, self.version = spec, version
        self.line, self.block, self.fresh = self.source.line, self.source.block, self.source.fresh
