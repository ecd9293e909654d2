"""Positions of addresses in responses, derived from the definitions (wire/README.md rule 13)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from kafka_share_proxy.wire.codec import primitives
from kafka_share_proxy.wire.codec.skipping import Skipper
from kafka_share_proxy.wire.codec.source import Source
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES, FieldSpec, MessageSpec, SchemaError, StructSpec
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError
from kafka_share_proxy.wire.values import UNKNOWN_NODE


class TagSize(NamedTuple):
    """Size varint of a tagged field: its own bytes are at [start:end), its value is `size`."""

    start: int
    end: int
    size: int

    def surrounds(self, start: int, end: int) -> bool:
        return self.end <= start and end <= self.end + self.size


class Endpoint(NamedTuple):
    """A host and a port found in a response."""

    node_id: int
    """UNKNOWN_NODE if the definition has no such field."""
    start: int
    end: int
    host: str | None
    port: int
    sizes: tuple[TagSize, ...] = ()
    """Size varints of the surrounding tagged fields, outermost first."""


Locator = Callable[[Any, int], list[Endpoint]]
"""Finds the endpoints after the offset of the body. Raises RemoteProtocolError."""


@cache
def carriers() -> frozenset[int]:
    """Return the keys of the APIs whose responses contain addresses in any version."""
    return frozenset(key for key in registry.API_KEYS if _carrying(registry.response_spec(key)))


@cache
def locator(key: int, version: int) -> Locator | None:
    """Return the locator, which is compiled for its first response: most versions are never received.

    None if that version carries no address. Raises UnknownVersion for another version of a response with addresses.
    """
    if not registry.response_mentions(key, "host"):
        return None
    spec = registry.versioned_response_spec(key, version)
    if not _LocatorGenerator(spec, version).carries(spec.root):
        return None
    locate: Callable[[Any, int, int], list[Endpoint]] | None = None

    def locate_endpoints(buffer: Any, offset: int) -> list[Endpoint]:
        nonlocal locate
        locate = locate or _LocatorGenerator(spec, version).message().function("locate")
        try:
            endpoints_located: list[Endpoint] = locate(buffer, offset, len(buffer))
        except (IndexError, struct.error) as error:
            raise RemoteProtocolError(f"{spec.name} v{version}: the message ends too early") from error
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"{spec.name} v{version}: a host is not UTF-8") from error
        return endpoints_located

    return locate_endpoints


def in_tagged_field(key: int, version: int) -> bool:
    """True if only `splice` may replace such an address."""
    spec = registry.response_spec(key)
    generator = _LocatorGenerator(spec, version)
    structs = (spec.root, *spec.structs.values())
    return any(
        field.is_tagged(version) and field.struct is not None and generator.carries(field.struct)
        for struct_ in structs
        for field in struct_.fields
    )


@cache
def _layout(key: int, version: int) -> tuple[bool, str]:
    """Return True if the host is a compact string, and the struct code of the port."""
    spec = registry.response_spec(key)
    carrying = _carrying(spec)
    if not carrying:
        raise LocalProtocolError(f"{spec.name} carries no address")
    ports = {field.type for struct_ in carrying for field in struct_.fields if field.name.lower() == "port"}
    if len(ports) != 1:
        raise SchemaError(f"{spec.name}: ports of several types")
    return version in spec.flexible, {"int32": "i", "uint16": "H"}[ports.pop()]


def encode(key: int, version: int, host: str, port: int) -> bytes:
    """Encode an address as in a response. Raises LocalProtocolError if that has no address, or this one is invalid."""
    compact, code = _layout(key, version)
    encoded = host.encode()
    if len(encoded) > primitives.STRING_MAX:
        raise primitives.too_long(len(encoded))
    length = primitives.uvarint(len(encoded) + 1) if compact else struct.pack(">h", len(encoded))
    try:
        return length + encoded + struct.pack(">" + code, port)
    except struct.error as error:
        raise LocalProtocolError(f"no port: {port}") from error


def splice(buffer: Any, replacements: Iterable[tuple[Endpoint, bytes]]) -> bytes:
    """Replace endpoints, in their order, and correct the sizes of tagged fields."""
    edits: list[tuple[int, int, bytes]] = []
    grown: dict[TagSize, int] = {}
    for endpoint, data in replacements:
        edits.append((endpoint.start, endpoint.end, data))
        for around in endpoint.sizes:
            grown[around] = grown.get(around, 0) + len(data) - (endpoint.end - endpoint.start)
    # Start with the innermost size: if its varint grows, the sizes around it grow as well.
    for field in sorted(grown, reverse=True):
        written = primitives.uvarint(field.size + grown[field])
        edits.append((field.start, field.end, written))
        for around in grown:
            if around.surrounds(field.start, field.end):
                grown[around] += len(written) - (field.end - field.start)
    return _edited(buffer, edits)


def _edited(buffer: Any, edits: list[tuple[int, int, bytes]]) -> bytes:
    parts: list[Any] = []
    position = 0
    for start, end, data in sorted(edits):
        parts += (buffer[position:start], data)
        position = end
    parts.append(buffer[position:])
    return b"".join(parts)


def _carrying(spec: MessageSpec) -> list[StructSpec]:
    structs = []
    for struct_ in (spec.root, *spec.structs.values()):
        names = [field.name.lower() for field in struct_.fields]
        if "host" in names and "port" in names:
            if names.index("port") != names.index("host") + 1:
                raise SchemaError(f"{spec.name}.{struct_.name}: host and port are not adjacent fields")
            structs.append(struct_)
    return structs


class _LocatorGenerator(Skipper):
    """Generator of the source of `locate(buf, p, end)`."""

    def __init__(self, spec: MessageSpec, version: int) -> None:
        super().__init__(spec, version)
        self.source.names.update(Endpoint=Endpoint, TagSize=TagSize)
        self.node = str(UNKNOWN_NODE)
        """Variable with the node id of the current structure."""
        self.sizes: tuple[str, ...] = ()
        """Variables with the size varints around the current position."""
        self._with_address = {struct_.name for struct_ in _carrying(spec)}

    def carries(self, struct_: StructSpec) -> bool:
        own = struct_.name in self._with_address
        return any(
            own and field.name.lower() == "host" and self.version in field.versions for field in struct_.fields
        ) or any(self.is_carrier(field) for field in struct_.fields)

    def is_carrier(self, field: FieldSpec) -> bool:
        return field.struct is not None and self.version in field.versions and self.carries(field.struct)

    def message(self) -> Source:
        with self.block("def locate(buf, p, end):"):
            self.line("found = []")
            root = self.spec.root
            if any(self.is_carrier(field) for field in self.source.tagged_fields(root)):
                self.struct(root)
            else:
                self.walked(root, self.up_to_last_carrier(root))
            self.flush()
            with self.block("if p > end:"):
                self.line("raise IndexError")
            self.line("return found")
        return self.source

    def up_to_last_carrier(self, struct_: StructSpec) -> list[FieldSpec]:
        fields = self.source.plain_fields(struct_)
        indices = [i for i, field in enumerate(fields) if self.is_carrier(field) or field.name.lower() == "port"]
        return fields[: indices[-1] + 1]

    def fields(self, struct_: StructSpec) -> None:
        self.walked(struct_, self.source.plain_fields(struct_))

    def walked(self, struct_: StructSpec, fields: list[FieldSpec]) -> None:
        has_address = struct_.name in self._with_address
        outer = self.node
        for field in fields:
            if _names_node(field) and self.carries(struct_):
                self.node = self.fresh("node")
                self.line(f"{self.node} = read_int32(buf, {self.here()})[0]")
            if has_address and field.name.lower() == "host":
                self.host(field)
            elif has_address and field.name.lower() == "port":
                self.port(field)
            else:
                self.value(field)
        self.node = outer

    def host(self, field: FieldSpec) -> None:
        self.flush()
        self.line("start = p")
        n = self.length(field, short=True)
        self.line("host = None")
        with self.block(f"if {n} >= 0:"):
            self.line(f"p += {n}")
            with self.block("if p > end:"):
                self.line("raise IndexError")
            self.line(f"host = str(buf[p - {n}:p], 'utf-8')")

    def port(self, field: FieldSpec) -> None:
        self.line(f"port = read_{field.type}(buf, p)[0]")
        self.line(f"p += {FIXED_SIZES[field.type]}")
        sizes = "".join(f"{size}, " for size in self.sizes)
        self.line(f"found.append(Endpoint({self.node}, start, p, host, port, ({sizes})))")

    def fixed_size(self, field: FieldSpec) -> int | None:
        """Return the size of a field, or None if it contains an address."""
        return None if field.struct is not None and self.carries(field.struct) else super().fixed_size(field)

    def some_tags(self, t: str, struct_: StructSpec) -> None:
        carriers_here = [field for field in self.source.tagged_fields(struct_) if self.is_carrier(field)]
        if carriers_here:
            self.tagged_carriers(t, carriers_here)
        else:
            super().some_tags(t, struct_)

    def tagged_carriers(self, t: str, fields: list[FieldSpec]) -> None:
        tag, size = self.fresh("k"), self.fresh("s")
        self.line(f"{t}, p = read_uvarint(buf, p - 1)")
        self.line(f"P.check_tags({t}, end - p)")
        with self.block(f"for _ in range({t}):"):
            self.line(f"{tag}, p = read_uvarint(buf, p)")
            self.line("start = p")
            self.line(f"{size}, p = read_uvarint(buf, p)")
            self.line(f"{size} = TagSize(start, p, {size})")
            for index, field in enumerate(fields):
                with self.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"):
                    outer, self.sizes = self.sizes, (*self.sizes, size)
                    self.value(field)
                    self.flush()
                    self.sizes = outer
                    with self.block(f"if p != {size}.end + {size}.size:"):
                        self.line(f"raise P.mismatch({field.name!r})")
            with self.block("else:"):
                self.line(f"p += {size}.size")


def _names_node(field: FieldSpec) -> bool:
    return field.type == "int32" and not field.is_array and field.name in {"NodeId", "BrokerId"}
