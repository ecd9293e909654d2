"""Generator of the decoder of one message in one version, as straight-line Python.

`p` is the position, `end` the end of the buffer. Fixed-size values accumulate in a *run* together with the length or
tag count that follows, and one Struct reads the run. A one-byte varint is read directly, longer ones take the slow
path. Reading past the end raises IndexError or struct.error.

In slices, the code counts the elements of each array before it reads them, so that it stops at a limit before
allocating anything for them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from struct import calcsize
from typing import Any

from kafka_share_proxy.wire.codec.primitives import ELEMENTS_MAX, STRING_MAX
from kafka_share_proxy.wire.codec.source import CODES, NUMBERS, Generator, Source
from kafka_share_proxy.wire.definitions.message_classes import default_source
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES, FieldSpec, MessageSpec, StructSpec

BYTES_AS_ONE = 4
"""Right shift of the count of one-byte numbers (acknowledgement types): 16 of them count as one element."""


def has_views(spec: MessageSpec) -> bool:
    """True if the message carries records, and is decoded from a memoryview, never from a copy."""
    fields = [f for struct in (spec.root, *spec.structs.values()) for f in struct.fields]
    return any(field.type == "records" for field in fields)


def generate(spec: MessageSpec, version: int, classes: dict[str, type[Any]], *, in_slices: bool = False) -> Source:
    """Generate `decode(buf, view, p, end) -> (message, position)`, or a generator with `left` array elements at most.

    buf is bytes, or, if `has_views`, a memoryview; view is a memoryview of the same.
    """
    return _Decoder(spec, version, classes, in_slices).message()


class _Decoder(Generator):
    def __init__(self, spec: MessageSpec, version: int, classes: dict[str, type[Any]], in_slices: bool) -> None:
        super().__init__(spec, version)
        self.in_slices = in_slices
        self.views = has_views(spec)
        self.run: list[tuple[str, str]] = []
        """Struct codes of unread values, and the targets of their assignment."""
        for name, message_class in classes.items():
            self.source.names[f"C_{name}"] = message_class

    def message(self) -> Source:
        self.source.names["new"] = object.__new__
        with self.block(f"def decode(buf, view, p, end{', left' if self.in_slices else ''}):"):
            if self.in_slices:
                self.source.begin_slices()
            self.line(f"m = new(C_{self.spec.name})")
            self.struct(self.spec.root, "m", self.spec.name)
            self.flush()
            self.line("return m, p")
        return self.source

    def flush(self) -> None:
        """Write the code that reads the run."""
        run, self.run = self.run, []
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if codes == "B":
            self.line(f"{run[0][1]} = buf[p]")
        else:
            targets = ", ".join(target for _, target in run)
            self.line(f"{targets}, = {self.source.struct(codes, 'unpack_from')}(buf, p)")
        self.line(f"p += {calcsize('>' + codes)}")

    def struct(self, struct: StructSpec, target: str, where: str) -> None:
        for field in self.source.absent_fields(struct):
            self.absent(field, f"{target}.{field.attribute}")
        for field in self.source.plain_fields(struct):
            self.value(field, f"{target}.{field.attribute}", f"{where}.{field.name}")
        if self.source.is_flexible():
            self.tags(struct, target, where)
        else:
            self.line(f"{target}.unknown_tags = ()")

    def absent(self, field: FieldSpec, target: str) -> None:
        """Set a field to its default. Filling a structure inline is faster than its constructor."""
        if field.struct is None or field.is_array or field.default is None:
            self.line(f"{target} = {default_source(field)}")
            return
        o = self.fresh("o")
        self.line(f"{target} = {o} = new(C_{field.struct.name})")
        for inner in field.struct.fields:
            self.absent(inner, f"{o}.{inner.attribute}")
        self.line(f"{o}.unknown_tags = ()")

    def value(self, field: FieldSpec, target: str, where: str) -> None:
        if field.is_array:
            self.array(field, target, where)
        elif field.struct is not None:
            self.single_struct(field.struct, field.is_nullable(self.version), target, where)
        elif field.type in FIXED_SIZES:
            self.run.append((CODES[field.type], target))
        else:
            self.variable(field, target, where, nullable=field.is_nullable(self.version))

    def length(self, field: FieldSpec, count: bool = False) -> tuple[str, int]:
        """Read a length or count with the run. Return its name and the number to subtract from it.

        A length of one byte is not checked: it allocates next to nothing, and reading past the end raises.
        """
        n = self.fresh("n")
        short = field.type == "string" and not count
        size = self.source.min_element(field) if count else 1
        most = ELEMENTS_MAX if count else STRING_MAX if short else "end"
        if not self.source.is_flexible(field):
            self.run.append(("h" if short else "i", n))
            self.flush()
            with self.block(f"if {n} > 127:"):
                self.line(f"P.check_count({field.name!r}, {n}, {most}, {size}, end - p)")
            return n, 0
        self.run.append(("B", n))
        self.flush()
        with self.block(f"if {n} > 127:"):
            self.line(f"{n}, p = read_uvarint(buf, p - 1)")
            self.line(f"P.check_count({field.name!r}, {n} - 1, {most}, {size}, end - p)")
        return n, 1

    def unless_null(self, n: str, more: int, nullable: bool, target: str, where: str) -> AbstractContextManager[None]:
        """Write the code for null. The context handles all other values."""
        if nullable:
            with self.block(f"if {n} == {more - 1}:"):
                self.assign(target, "None")
            if more:
                return self.block("else:")
        with self.block(f"{'elif' if nullable else 'if'} {n} < {more}:"):
            self.line(f"raise P.refusal({where!r}, {n} - {more}, end - p)")
        return self.block("else:") if nullable else nullcontext()

    def variable(self, field: FieldSpec, target: str, where: str, nullable: bool) -> None:
        """Read a value. `target` is assigned, or called if it ends in a bracket."""
        n, more = self.length(field)
        with self.unless_null(n, more, nullable, target, where):
            part = f"p:(p := p + {n}{' - 1' if more else ''})"
            if field.type != "string":
                self.assign(target, f"view[{part}]")
            elif self.views:
                self.assign(target, f"str(buf[{part}], 'utf-8')")
            else:
                self.assign(target, f"buf[{part}].decode()")

    def assign(self, target: str, value: str) -> None:
        self.line(f"{target}{value})" if target.endswith("(") else f"{target} = {value}")

    def single_struct(self, struct: StructSpec, nullable: bool, target: str, where: str) -> None:
        if not nullable:
            self.new_struct(struct, target, where)
            return
        flag = self.fresh("n")
        self.run.append(("b", flag))
        self.flush()
        with self.block(f"if {flag} == -1:"):
            self.line(f"{target} = None")
        with self.block(f"elif {flag} == 1:"):
            self.new_struct(struct, target, where)
            self.flush()
        with self.block("else:"):
            self.line(f"raise P.refusal({where!r}, {flag}, end - p)")

    def new_struct(self, struct: StructSpec, target: str, where: str) -> None:
        o = self.fresh("o")
        self.line(f"{target} = {o} = new(C_{struct.name})")
        self.struct(struct, o, where)

    def array(self, field: FieldSpec, target: str, where: str) -> None:
        size = self.source.min_element(field)
        n, more = self.length(field, count=True)
        with self.unless_null(n, more, field.is_nullable(self.version), target, where):
            if field.type in NUMBERS:
                numbers = self.source.numbers(field.type)
                if more:
                    self.line(f"{n} -= 1")
                self.count(f"({n} >> {BYTES_AS_ONE})" if FIXED_SIZES[field.type] == 1 else n)
                self.line(f"{target} = list({numbers}[{n}].unpack_from(buf, p)) if {n} else []")
                self.line(f"p += {n} * {size}")
                return
            items, add = self.fresh("l"), self.fresh("a")
            self.line(f"{target} = {items} = []")
            self.line(f"{add} = {items}.append")
            self.count(f"({n} - 1)" if more else n)
            with self.block(f"for _ in range({n}{' - 1' if more else ''}):"):
                if self.in_slices:
                    self.source.pause()
                self.element(field, add, where)

    def count(self, elements: str) -> None:
        if self.in_slices:
            self.line(f"left -= {elements}")
            with self.block("if left < 0:"):
                self.line("raise P.too_many()")

    def element(self, field: FieldSpec, add: str, where: str) -> None:
        if field.struct is not None:
            o = self.fresh("o")
            self.line(f"{o} = new(C_{field.struct.name})")
            self.line(f"{add}({o})")
            self.struct(field.struct, o, where)
            self.flush()
        elif field.type == "uuid":
            self.line(f"{add}(bytes(buf[p:p + 16]))")
            self.line("p += 16")
        elif field.type == "bool":
            self.line(f"{add}(buf[p] != 0)")
            self.line("p += 1")
        else:
            self.variable(field, f"{add}(", where, nullable=False)

    def tags(self, struct: StructSpec, target: str, where: str) -> None:
        known = self.source.tagged_fields(struct)
        for field in known:
            self.absent(field, f"{target}.{field.attribute}")
        t = self.fresh("t")
        self.run.append(("B", t))
        self.flush()
        with self.block(f"if {t}:"):
            if known:
                self.known_tags(known, target, where)
            else:
                self.line(f"{target}.unknown_tags, p = P.read_tags(buf, p - 1, end)")
                self.count(f"len({target}.unknown_tags)")
        with self.block("else:"):
            self.line(f"{target}.unknown_tags = ()")

    def known_tags(self, known: list[FieldSpec], target: str, where: str) -> None:
        t, unknown, tag, stop = (self.fresh(prefix) for prefix in ("t", "u", "k", "z"))
        self.line(f"{t}, p = read_uvarint(buf, p - 1)")
        self.line(f"P.check_tags({t}, end - p)")
        self.count(t)
        self.line(f"{unknown} = []")
        with self.block(f"for _ in range({t}):"):
            self.line(f"{tag}, p = read_uvarint(buf, p)")
            self.line(f"{stop}, p = read_uvarint(buf, p)")
            self.line(f"{stop} += p")
            with self.block(f"if {stop} > end:"):
                self.line(f"raise P.refusal({where!r}, {stop} - p, end - p)")
            for index, field in enumerate(known):
                with self.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"):
                    self.value(field, f"{target}.{field.attribute}", f"{where}.{field.name}")
                    self.flush()
                    with self.block(f"if p != {stop}:"):
                        self.line(f"raise P.mismatch({f'{where}.{field.name}'!r})")
            with self.block("else:"):
                self.line(f"{unknown}.append(({tag}, bytes(buf[p:{stop}])))")
                self.line(f"p = {stop}")
        self.line(f"{target}.unknown_tags = tuple({unknown})")
