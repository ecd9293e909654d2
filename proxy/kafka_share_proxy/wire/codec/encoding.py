"""Generator of the encoder of one message in one version, as straight-line Python.

Bytes and records are appended without a copy. As in the decoder, fixed-size values accumulate in a run with the length
that follows, and one Struct packs them. A length whose varint has more than one byte splits the run.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from kafka_share_proxy.wire.codec.source import CODES, NUMBERS, Generator, Source
from kafka_share_proxy.wire.definitions.message_classes import default_source
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES, FieldSpec, MessageSpec, StructSpec


def generate(spec: MessageSpec, version: int, classes: dict[str, type[Any]], *, in_slices: bool = False) -> Source:
    """Generate `encode(m, a)`, which appends the parts of the message through `a`."""
    return _Encoder(spec, version, classes, in_slices).message()


class _Encoder(Generator):
    def __init__(self, spec: MessageSpec, version: int, classes: dict[str, type[Any]], in_slices: bool) -> None:
        super().__init__(spec, version)
        self.in_slices = in_slices
        self.append = "a"
        """Name of the function that accepts parts."""
        self.run: list[tuple[str, str]] = []
        """Struct codes and their values that are not packed yet."""
        for name, message_class in classes.items():
            self.source.names[f"C_{name}"] = message_class

    def message(self) -> Source:
        with self.block("def encode(m, a):"):
            if self.in_slices:
                self.source.begin_slices()
            self.struct(self.spec.root, "m", self.spec.name)
            self.flush()
        return self.source

    def packed(self, run: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in run)
        values = ", ".join(value for code, value in run if code != "x")
        return f"{self.source.struct(codes, 'pack')}({values})"

    def flush(self) -> None:
        """Write the code that appends the run."""
        run, self.run = self.run, []
        if run:
            self.line(f"{self.append}({self.packed(run)})")

    def flush_with_length(self, n: str, slow: str) -> None:
        run, self.run = self.run, []
        front = f"{self.packed(run)} + " if run else ""
        fast = self.packed([*run, ("B", n)])
        self.line(f"{self.append}({fast} if {n} < 128 else {front}{slow}({n}))")

    def struct(self, struct: StructSpec, value: str, where: str) -> None:
        for field in self.source.absent_fields(struct):
            if not field.ignorable:
                self.refuse_if_set(field, f"{value}.{field.attribute}", f"{where}.{field.name}")
        for field in self.source.plain_fields(struct):
            self.value(field, f"{value}.{field.attribute}")
        if self.source.is_flexible():
            self.tags(struct, value)
        else:
            with self.block(f"if {value}.unknown_tags:"):
                self.line(f"raise P.lacking({where + '.unknown_tags'!r})")

    def is_set(self, field: FieldSpec, value: str) -> str:
        if field.default is None:
            return f"{value} is not None"
        if field.struct is not None and not field.is_array:
            parts = [self.is_set(inner, f"{value}.{inner.attribute}") for inner in field.struct.fields]
            return " or ".join([*parts, f"{value}.unknown_tags"])
        if field.is_array or field.type in {"string", "bytes"}:
            if field.default:
                return f"{value} != {field.default!r}"
            return f"{value} is None or len({value})"
        return f"{value} != {default_source(field)}"

    def refuse_if_set(self, field: FieldSpec, value: str, where: str) -> None:
        with self.block(f"if {self.is_set(field, value)}:"):
            self.line(f"raise P.lacking({where!r})")

    def value(self, field: FieldSpec, value: str) -> None:
        nullable = field.is_nullable(self.version)
        if field.is_array:
            self.array(field, value, nullable)
        elif field.struct is not None:
            self.single_struct(field.struct, value, nullable)
        elif field.type in FIXED_SIZES:
            self.fixed(field, value)
        else:
            self.variable(field, value, nullable)

    def fixed(self, field: FieldSpec, value: str) -> None:
        if field.type == "uuid":
            with self.block(f"if len({value}) != 16:"):
                self.line(f"raise P.bad_uuid({value})")
        self.run.append((CODES[field.type], value))

    def variable(self, field: FieldSpec, value: str, nullable: bool) -> None:
        """Write a value, null as a length without content."""
        b, n = self.fresh("b"), self.fresh("n")
        flexible = self.source.is_flexible(field)
        text = ".encode()" if field.type == "string" else ""
        if nullable:
            self.line(f"{b} = {value}")
            with self.block(f"if {b} is None:"):
                self.line(f"{b} = b''")
                self.line(f"{n} = {0 if flexible else -1}")
        with self.block("else:") if nullable else nullcontext():
            self.line(f"{b} = {b if nullable else value}{text}")
            self.line(f"{n} = len({b})" + (" + 1" if flexible else ""))
        if flexible:
            self.flush_with_length(n, "P.string_uvarint" if field.type == "string" else "uvarint")
        else:
            self.run.append(("h" if field.type == "string" else "i", n))
            self.flush()
        self.line(f"{self.append}({b})")

    def single_struct(self, struct: StructSpec, value: str, nullable: bool) -> None:
        o = self.fresh("o")
        self.line(f"{o} = {value}")
        if not nullable:
            self.struct(struct, o, struct.name)
            return
        self.flush()
        with self.block(f"if {o} is None:"):
            self.line(f"{self.append}(b'\\xff')")
        with self.block("else:"):
            self.line(f"{self.append}(b'\\x01')")
            self.struct(struct, o, struct.name)
            self.flush()

    def array(self, field: FieldSpec, value: str, nullable: bool) -> None:
        if field.type in NUMBERS:
            self.numbers(field, value, nullable)
            return
        items, n = self.fresh("l"), self.fresh("n")
        flexible = self.source.is_flexible(field)
        self.line(f"{items} = {value}")
        length = f"len({items})" + (" + 1" if flexible else "")
        if nullable:
            self.line(f"{n} = {0 if flexible else -1} if {items} is None else {length}")
        else:
            self.line(f"{n} = {length}")
        if flexible:
            self.flush_with_length(n, "uvarint")
        else:
            self.run.append(("i", n))
            self.flush()
        with self.block(f"if {n} > {1 if flexible else 0}:"):
            self.elements(field, items)

    def numbers(self, field: FieldSpec, value: str, nullable: bool) -> None:
        """Pack run, count and numbers with one Struct, unless the count has several bytes."""
        items, n = self.fresh("l"), self.fresh("n")
        run, self.run = self.run, []
        flexible = self.source.is_flexible(field)
        count = ("B", f"{n} + 1") if flexible else ("i", n)
        codes = "".join(code for code, _ in run) + count[0]
        front = "".join(f"{inner}, " for _, inner in run)
        self.line(f"{items} = {value}")
        if nullable:
            with self.block(f"if {items} is None:"):
                self.line(f"{self.append}({self.packed([*run, (count[0], '0' if flexible else '-1')])})")
        with self.block("else:") if nullable else nullcontext():
            self.line(f"{n} = len({items})")
            fused = f"{self.append}({self.source.numbers(field.type, codes)}[{n}].pack({front}{count[1]}, *{items}))"
            if not flexible:
                self.line(fused)
                return
            with self.block(f"if {n} < 127:"):
                self.line(fused)
            with self.block("else:"):
                self.line(f"{self.append}({f'{self.packed(run)} + ' if run else ''}uvarint({n} + 1))")
                self.line(f"{self.append}({self.source.numbers(field.type)}[{n}].pack(*{items}))")

    def elements(self, field: FieldSpec, items: str) -> None:
        o = self.fresh("o")
        with self.block(f"for {o} in {items}:"):
            if self.in_slices:
                self.source.pause()
            if field.struct is not None:
                self.struct(field.struct, o, field.struct.name)
            elif field.type in FIXED_SIZES:
                self.fixed(field, o)
            else:
                self.variable(field, o, nullable=False)
            self.flush()

    def tags(self, struct: StructSpec, value: str) -> None:
        """Write the tag section. If it is empty, its count of 0 is packed with the run."""
        known = [(field, f"{value}.{field.attribute}") for field in self.source.tagged_fields(struct)]
        set_ = [self.is_set(field, attribute) for field, attribute in known]
        run, self.run = self.run, []
        with self.block(f"if {' or '.join([*set_, f'{value}.unknown_tags'])}:"):
            if run:
                self.line(f"{self.append}({self.packed(run)})")
            tags = self.fresh("t")
            self.line(f"{tags} = []")
            for (field, attribute), condition in zip(known, set_, strict=True):
                with self.block(f"if {condition}:"):
                    self.tagged(field, attribute, tags)
            self.line(f"P.write_tags({self.append}, {tags}, {value}.unknown_tags)")
        with self.block("else:"):
            self.line(f"{self.append}({self.packed([*run, ('x', '')])})" if run else f"{self.append}(b'\\0')")

    def tagged(self, field: FieldSpec, value: str, tags: str) -> None:
        """Encode one tagged field separately, because its size precedes it."""
        parts, outer = self.fresh("q"), self.append
        self.append = self.fresh("a")
        self.line(f"{parts} = []")
        self.line(f"{self.append} = {parts}.append")
        self.value(field, value)
        self.flush()
        self.append = outer
        self.line(f"{tags}.append(({field.tag}, b''.join({parts})))")
