"""Code generator for skipping fields without decoding them.

In generated code, `buf` is the input, `p` the position, and `end` the position that no field may exceed. Fixed sizes
accumulate in `skip` until something is read. Reading past the buffer raises IndexError or struct.error.
"""

from __future__ import annotations

from struct import Struct

from kafka_share_proxy.wire.codec.primitives import ELEMENTS_MAX, STRING_MAX
from kafka_share_proxy.wire.codec.source import CODES, Generator
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES, FieldSpec, MessageSpec, StructSpec

_READERS = {f"read_{name}": Struct(">" + code).unpack_from for name, code in CODES.items()}


class Skipper(Generator):
    """Generator of code that skips the fields of one message in one version."""

    def __init__(self, spec: MessageSpec, version: int) -> None:
        super().__init__(spec, version)
        self.source.names.update(_READERS)
        self.skip = 0

    def flush(self) -> None:
        if self.skip:
            self.line(f"p += {self.skip}")
            self.skip = 0

    def here(self) -> str:
        return f"p + {self.skip}" if self.skip else "p"

    def struct(self, struct_: StructSpec) -> None:
        self.fields(struct_)
        if self.source.is_flexible():
            self.tags(struct_)

    def fields(self, struct_: StructSpec) -> None:
        for field in self.source.plain_fields(struct_):
            self.value(field)

    def value(self, field: FieldSpec) -> None:
        if field.is_array:
            self.array(field)
        elif field.struct is not None:
            self.single_struct(field.struct, field.is_nullable(self.version))
        elif field.type in FIXED_SIZES:
            self.skip += FIXED_SIZES[field.type]
        else:
            self.variable(field)

    def length(self, field: FieldSpec, short: bool) -> str:
        """Read a length, -1 for null. `short`: the old-style length of a string."""
        n = self.fresh("n")
        if self.source.is_flexible(field):
            self.line(f"{n} = buf[{self.here()}]")
            self.line(f"p += {self.skip + 1}")
            with self.block(f"if {n} > 127:"):
                self.line(f"{n}, p = read_uvarint(buf, p - 1)")
                if short:
                    with self.block(f"if {n} > {STRING_MAX + 1}:"):
                        self.line(f"raise P.refusal({field.name!r}, {n} - 1, end - p)")
            self.line(f"{n} -= 1")
        else:
            read, size = ("read_int16", 2) if short else ("read_int32", 4)
            self.line(f"{n} = {read}(buf, {self.here()})[0]")
            self.line(f"p += {self.skip + size}")
            with self.block(f"if {n} < -1:"):
                self.line(f"raise P.refusal({field.name!r}, {n}, end - p)")
        self.skip = 0
        return n

    def variable(self, field: FieldSpec) -> None:
        n = self.length(field, short=field.type == "string")
        with self.block(f"if {n} > 0:"):
            self.line(f"p += {n}")

    def single_struct(self, struct_: StructSpec, nullable: bool) -> None:
        if not nullable:
            self.struct(struct_)
            return
        flag = self.fresh("n")
        self.line(f"{flag} = buf[{self.here()}]")
        self.line(f"p += {self.skip + 1}")
        self.skip = 0
        with self.block(f"if {flag} == 1:"):
            self.struct(struct_)
            self.flush()
        with self.block(f"elif {flag} != 255:"):
            self.line(f"raise P.refusal({struct_.name!r}, {flag}, end - p)")

    def array(self, field: FieldSpec) -> None:
        n = self.count(field)
        fixed = self.fixed_size(field)
        if fixed is None:
            self.counted(n)
            self.each(field, n)
        elif field.struct is not None and self.source.is_flexible():
            self.each_of_fixed_size(field, n, fixed)
        else:
            with self.block(f"if {n} > 0:"):
                self.line(f"p += {n} * {fixed}")

    def count(self, field: FieldSpec) -> str:
        n = self.length(field, short=False)
        size = self.source.min_element(field)
        with self.block(f"if {n} > {ELEMENTS_MAX} or {n} * {size} > end - p:"):
            self.line(f"raise P.refusal({field.name!r}, {n}, end - p)")
        return n

    def counted(self, n: str) -> None:
        """Hook: the code that follows iterates over `n` elements."""

    def each(self, field: FieldSpec, n: str) -> None:
        with self.block(f"for _ in range({n}):"):
            if field.struct is not None:
                self.struct(field.struct)
            else:
                self.variable(field)
            self.flush()

    def each_of_fixed_size(self, field: FieldSpec, n: str, size: int) -> None:
        """Skip all elements in one step if none of them has tags, which is the common case."""
        with self.block(f"if {n} > 0:"):
            with self.block(f"if bytes(buf[p + {size - 1}:p + {n} * {size}:{size}]).count(0) == {n}:"):
                self.line(f"p += {n} * {size}")
            with self.block("else:"):
                self.not_of_fixed_size(field, n, size)

    def not_of_fixed_size(self, field: FieldSpec, n: str, _size: int) -> None:
        self.counted(n)
        self.each(field, n)

    def fixed_size(self, field: FieldSpec) -> int | None:
        """Return the size of an element without tags, or None if it varies."""
        if field.struct is None:
            return FIXED_SIZES.get(field.type)
        fields = self.source.plain_fields(field.struct)
        if any(inner.is_array or inner.type not in FIXED_SIZES for inner in fields):
            return None
        return sum(FIXED_SIZES[inner.type] for inner in fields) + self.source.is_flexible()

    def tags(self, struct_: StructSpec) -> None:
        t = self.fresh("t")
        self.line(f"{t} = buf[{self.here()}]")
        self.line(f"p += {self.skip + 1}")
        self.skip = 0
        with self.block(f"if {t}:"):
            self.some_tags(t, struct_)

    def some_tags(self, _t: str, _struct: StructSpec) -> None:
        """Skip a non-empty tag section, whose first byte has been read into `t`."""
        self.line("p = P.skip_tags(buf, p - 1, end)")
