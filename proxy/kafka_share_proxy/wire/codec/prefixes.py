"""Readers that decode the first fields of a request from the bytes received so far (wire/README.md rule 29).

The caller names the values it needs by kind (`FieldOf`, `PlaceOf`, `ArrayAt`, `EachOf`, `AnyBegins`). A reader has
three outcomes:

- a value, or a tuple if several were requested, equal to the result of the codec;
- `Unread`: too few bytes were received (`MORE_BYTES`), or a limit of the caller was reached (`TOO_MANY`, `TAGGED`);
- RemoteProtocolError, with the name of the message: no continuation can make these bytes a valid message.

Each loop iteration reads at least one byte. A client id that is not UTF-8 is skipped, as brokers do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, partial
from typing import Any, Protocol

from kafka_share_proxy.wire.codec import headers
from kafka_share_proxy.wire.codec.primitives import ELEMENTS_MAX
from kafka_share_proxy.wire.codec.skipping import Skipper
from kafka_share_proxy.wire.codec.source import Source
from kafka_share_proxy.wire.definitions import registry, specs
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES, FieldSpec, MessageSpec, StructSpec
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError

Buffer = bytes | bytearray | memoryview

SIZE_UNKNOWN = 1 << 62
"""End of the message, for a reader that does not know its length."""


class Unread(Enum):
    """Reason why there is no value yet."""

    MORE_BYTES = auto()
    """The value is after the bytes received so far."""
    TOO_MANY = auto()
    """The limit of array elements is reached before the value."""
    TAGGED = auto()
    """Tagged fields are present although `EachOf.untagged` is set."""


@dataclass(frozen=True, slots=True)
class FieldOf:
    """Value of a field: a number, a string or an id."""

    name: str


@dataclass(frozen=True, slots=True)
class PlaceOf:
    """Position of a field from the first byte read. A field of fixed size has been received completely."""

    name: str


@dataclass(frozen=True, slots=True)
class ArrayAt:
    """Position of an array's count, the count (-1 for null) and the position of the first element."""

    name: str


@dataclass(frozen=True, slots=True)
class EachOf:
    """Values of one field, or tuples of several, of all elements of an array, or None for null; without fields, the
    elements.
    """

    array: str
    fields: tuple[str, ...] = ()
    untagged: bool = False
    """Require that the whole array is received and has no tagged fields, nor the header."""


@dataclass(frozen=True, slots=True)
class AnyBegins:
    """Test if a string field of any array element begins with `prefix`, faster than by `EachOf`."""

    array: str
    field: str
    prefix: str


RequestedValue = FieldOf | PlaceOf | ArrayAt | EachOf | AnyBegins
"""Value that a reader returns."""


class PrefixReader(Protocol):
    """A generated reader of the first fields of a request."""

    def __call__(self, buf: Buffer, end: int = SIZE_UNKNOWN, elements_max: int = ELEMENTS_MAX, p: int = 0) -> Any:
        """Return the requested values, or `Unread`. Raises RemoteProtocolError.

        Args:
            buf: the bytes received so far, and nothing else.
            end: end of the message, as a position in `buf`. Once all of it is received, MORE_BYTES becomes an error.
            elements_max: maximum number of array elements to iterate over; TOO_MANY above.
            p: position of the first byte to read: a request's header (its API key), a body, or an element.
        """


@cache
def of_request(key: int, version: int, *requested: RequestedValue) -> PrefixReader:
    """Return a reader of a request frame without its size.

    Raises UnknownVersion, or LocalProtocolError if the request has no such field in this version.
    """
    spec = registry.versioned_request_spec(key, version)
    return _ReaderGenerator(spec, version, requested).reader(headers.request_header_version(key, version))


@cache
def of_body(message: str, version: int, *requested: RequestedValue) -> PrefixReader:
    """Raises SchemaError, or LocalProtocolError if the message has no such field in this version."""
    return _ReaderGenerator(specs.load(message), version, requested).reader(None)


@cache
def of_element(message: str, version: int, array: str, field: str) -> PrefixReader:
    """Return a reader of (value of the field, end of the element). Raises as `of_body`."""
    return _ReaderGenerator(specs.load(message), version, ()).element_reader(array, field)


@cache
def group_ids(key: int, version: int) -> PrefixReader:
    """Return a reader of one id, or of a list of them where the version has a list.

    Raises UnknownVersion, or LocalProtocolError if the request names no group in this version.
    """
    return of_request(key, version, _where(key, version, "group id", lambda field: field.entity == "groupId"))


@cache
def topic_named(key: int, version: int, prefix: str) -> PrefixReader:
    """Return a reader of True if a topic begins with `prefix`. Raises as `group_ids`."""
    listed = _listed(key, version, "topic name", _is_topic_name)
    return of_request(key, version, AnyBegins(listed.array, listed.fields[0], prefix))


@cache
def topic_names(key: int, version: int) -> PrefixReader:
    """Raises as `group_ids`."""
    listed = _listed(key, version, "topic name", _is_topic_name)
    return of_request(key, version, EachOf(listed.array, listed.fields))


@cache
def topic_ids(key: int, version: int, *, untagged: bool = False) -> PrefixReader:
    """Raises as `group_ids`."""
    listed = _listed(key, version, "topic id", _is_topic_id)
    return of_request(key, version, EachOf(listed.array, listed.fields, untagged))


@cache
def topics_at(key: int, version: int) -> PrefixReader:
    """Raises as `group_ids`."""
    return of_request(key, version, ArrayAt(_listed(key, version, "topic", _is_topic).array))


def topics_nullable(key: int, version: int) -> bool:
    """Raises as `group_ids`."""
    array = _listed(key, version, "topic", _is_topic).array
    return any(field.name == array and field.is_nullable(version) for field in registry.request_spec(key).root.fields)


@cache
def after_client_id(key: int, version: int, field: str) -> bytes:
    """Return the bytes before a field of a request without tags, with null strings and zero numbers.

    Raises UnknownVersion, or LocalProtocolError if there is no such field, or a field of another type precedes it.
    """
    prefix = b"\0" if headers.request_header_version(key, version) == 2 else b""
    source = Source(registry.versioned_request_spec(key, version), version)
    for each in source.plain_fields(source.spec.root):
        if each.name == field:
            return prefix
        if each.type in FIXED_SIZES and not each.is_array:
            prefix += bytes(FIXED_SIZES[each.type])
        elif each.type == "string" and each.is_nullable(version) and not each.is_array:
            prefix += b"\0" if source.is_flexible(each) else b"\xff\xff"
        else:
            break
    text = f"{source.spec.name} v{version}: {field} does not follow only numbers and nullable strings"
    raise LocalProtocolError(text)


def _is_topic_name(field: FieldSpec) -> bool:
    return field.entity == "topicName"


def _is_topic_id(field: FieldSpec) -> bool:
    return field.type == "uuid" and field.name == "TopicId"


def _is_topic(field: FieldSpec) -> bool:
    return _is_topic_name(field) or _is_topic_id(field)


def _listed(key: int, version: int, field_kind: str, is_it: Callable[[FieldSpec], bool]) -> EachOf:
    where = _where(key, version, field_kind, is_it)
    if not isinstance(where, EachOf) or not where.fields:
        raise LocalProtocolError(
            f"{registry.API_KEYS[key]}Request v{version} has no list of structures with a {field_kind}"
        )
    return where


def _where(key: int, version: int, field_kind: str, is_it: Callable[[FieldSpec], bool]) -> FieldOf | EachOf:
    spec = registry.versioned_request_spec(key, version)
    source = Source(spec, version)
    for field in source.plain_fields(spec.root):
        if field.struct is None and is_it(field):
            return EachOf(field.name) if field.is_array else FieldOf(field.name)
        for inner in source.plain_fields(field.struct) if field.struct is not None and field.is_array else ():
            if inner.struct is None and not inner.is_array and is_it(inner):
                return EachOf(field.name, (inner.name,))
    raise LocalProtocolError(f"{spec.name} v{version} has no {field_kind}")


class _ReaderGenerator(Skipper):
    """Generator of the source of `read(buf, end, elements_max, p)` (`PrefixReader`)."""

    def __init__(self, spec: MessageSpec, version: int, requested: Sequence[RequestedValue]) -> None:
        super().__init__(spec, version)
        self._requested = requested
        self._untagged = any(isinstance(target, EachOf) and target.untagged for target in requested)
        names = self.source.names
        names.update({kind.name: kind for kind in Unread})
        names.update(SIZE_UNKNOWN=SIZE_UNKNOWN, ELEMENTS_MAX=ELEMENTS_MAX)
        names.update(struct_error=struct.error, RemoteProtocolError=RemoteProtocolError)
        names.update(short=partial(_ends_early, str(self)), malformed=partial(_malformed, str(self)))

    def __str__(self) -> str:
        return f"{self.spec.name} v{self.version}"

    def reader(self, header_version: int | None) -> PrefixReader:
        with self.reading():
            if header_version is not None:
                self.header(header_version)
            values = self.read_requested()
            self.line(f"return {', '.join(values[target] for target in self._requested)}")
        return self.source.function("read")

    def element_reader(self, array: str, name: str) -> PrefixReader:
        field = next(field for field in self.source.plain_fields(self.spec.root) if field.name == array)
        if field.struct is None:
            raise LocalProtocolError(f"{self}: {array} has no structures")
        with self.reading():
            values, rest = self.element(field.struct, (name,))
            self.rest_of(field.struct, rest)
            self.require_received()
            self.line(f"return {values[0]}, p")
        return self.source.function("read")

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self.block("def read(buf, end=SIZE_UNKNOWN, elements_max=ELEMENTS_MAX, p=0):"):
            self.line("received = len(buf)")
            with self.block("try:"):
                yield
            with self.block("except (IndexError, struct_error):"):
                self.line("return short(received, end)")
            with self.block("except UnicodeDecodeError:"):
                self.line("raise malformed('a string is not UTF-8') from None")
            with self.block("except RemoteProtocolError as error:"):
                self.line("raise malformed(error) from error")

    def header(self, version: int) -> None:
        spec, own = specs.load("RequestHeader"), (self.spec, self.version)
        self.source.spec, self.source.version, self.version = spec, version, version
        self.struct(spec.root)
        self.source.spec, self.source.version, self.version = *own, own[1]

    def read_requested(self) -> dict[RequestedValue, str]:
        """Write the code that reads the values. Return the variable of each."""
        values: dict[RequestedValue, str] = {}
        if not self._requested:
            self.require_received()
            return values
        for field in self.source.plain_fields(self.spec.root):
            values |= self.read_from(field, [target for target in self._requested if _name(target) == field.name])
            if len(values) == len(self._requested):
                return values
        raise LocalProtocolError(f"{self} has no {', '.join(_name(w) for w in self._requested if w not in values)}")

    def read_from(self, field: FieldSpec, requested: list[RequestedValue]) -> dict[RequestedValue, str]:
        """Write the code that reads or skips a field. Return the variable of each value requested of it."""
        names: dict[RequestedValue, str] = {
            target: self.place(field) for target in requested if isinstance(target, PlaceOf)
        }
        remaining = [target for target in requested if not isinstance(target, PlaceOf)]
        if not remaining:
            self.value(field)
            return names
        if len(remaining) > 1:
            raise LocalProtocolError(f"{self}: {field.name} is requested twice")
        names[remaining[0]] = self.read_value(field, remaining[0])
        return names

    def read_value(self, field: FieldSpec, target: FieldOf | ArrayAt | EachOf | AnyBegins) -> str:
        if isinstance(target, FieldOf):
            return self.scalar(field, nullable=field.is_nullable(self.version))
        if target is not self._requested[-1]:
            raise LocalProtocolError(f"{self}: nothing can be read after {field.name}")
        if isinstance(target, ArrayAt):
            return self.array_at(field)
        return self.each_of(field, target) if isinstance(target, EachOf) else self.any_begins(field, target)

    def place(self, field: FieldSpec) -> str:
        position_name = self.fresh("v")
        self.line(f"{position_name} = {self.here()}")
        size = 0 if field.is_array else FIXED_SIZES.get(field.type, 0)
        with self.block(f"if {position_name} + {size} > received:"):
            self.line("raise IndexError")
        return position_name

    def scalar(self, field: FieldSpec, *, nullable: bool) -> str:
        value = self.fresh("v")
        if field.type in FIXED_SIZES:
            self.line(f"{value} = read_{field.type}(buf, {self.here()})[0]")
            self.skip += FIXED_SIZES[field.type]
            return value
        if field.type != "string":
            raise LocalProtocolError(f"{self}: {field.name} is no number, id or string")
        n = self.length(field, short=True)
        with self.block(f"if {n} < 0:"):
            self.line(f"{value} = None" if nullable else f"raise P.refusal({field.name!r}, -1, end - p)")
        with self.block("else:"):
            self.line(f"p += {n}")
            self.require_received()
            self.line(f"{value} = str(buf[p - {n}:p], 'utf-8')")
        return value

    def require_received(self) -> None:
        """Write the check that the bytes up to `p` were received."""
        self.flush()
        with self.block("if p > received:"):
            self.line("raise IndexError")

    def array_at(self, field: FieldSpec) -> str:
        value = self.fresh("v")
        self.line(f"{value} = {self.here()}")
        n = self.count(field)
        self.line(f"{value} = {value}, {n}, p")
        return value

    def each_of(self, field: FieldSpec, target: EachOf) -> str:
        values_name, countdown = self.fresh("v"), self.fresh("l")
        n = self.count(field)
        self.counted(n)
        self.line(f"{values_name} = None if {n} < 0 else []")
        with self.block(f"for {countdown} in range({n}, 0, -1):"):
            values, rest = self.values_of(field, target)
            self.line(f"{values_name}.append({values[0] if len(values) == 1 else '(' + ', '.join(values) + ')'})")
            if not target.untagged:
                with self.block(f"if {countdown} == 1:"):
                    self.line("break")
            if field.struct is not None:
                self.rest_of(field.struct, rest)
            self.flush()
        return values_name

    def any_begins(self, field: FieldSpec, target: AnyBegins) -> str:
        if field.struct is None:
            raise LocalProtocolError(f"{self}: {field.name} has no structures")
        result_name, countdown = self.fresh("v"), self.fresh("l")
        self.source.names["prefix"], size = target.prefix.encode(), len(target.prefix.encode())
        n = self.count(field)
        self.counted(n)
        self.line(f"{result_name} = False")
        with self.block(f"for {countdown} in range({n}, 0, -1):"):
            rest = self.beginning(field.struct, target)
            with self.block(f"if buf[start:start + {size}] == prefix and start + {size} <= p:"):
                self.line(f"{result_name} = True")
                self.line("break")
            with self.block(f"if {countdown} == 1:"):
                self.require_received()
                self.line("break")
            self.rest_of(field.struct, rest)
            self.flush()
        return result_name

    def beginning(self, struct_: StructSpec, target: AnyBegins) -> list[FieldSpec]:
        """Skip up to the end of the string, which begins at `start`. Return the fields after it."""
        fields = self.source.plain_fields(struct_)
        for index, field in enumerate(fields):
            if field.name == target.field and field.type == "string" and not field.is_array:
                n = self.length(field, short=True)
                self.line("start = p")
                with self.block(f"if {n} > 0:"):
                    self.line(f"p += {n}")
                return fields[index + 1 :]
            self.value(field)
        raise LocalProtocolError(f"{self}: {struct_.name} has no string {target.field}")

    def values_of(self, field: FieldSpec, target: EachOf) -> tuple[list[str], list[FieldSpec]]:
        if bool(target.fields) != (field.struct is not None):
            raise LocalProtocolError(f"{self}: {field.name} is not a list of such elements")
        if field.struct is None:
            return [self.scalar(field, nullable=False)], []
        return self.element(field.struct, target.fields)

    def element(self, struct_: StructSpec, names: Sequence[str]) -> tuple[list[str], list[FieldSpec]]:
        """Read up to the last of these fields. Return the names of the values, and the fields after it."""
        fields, values = self.source.plain_fields(struct_), dict[str, str]()
        for index, field in enumerate(fields):
            if field.name not in names:
                self.value(field)
                continue
            values[field.name] = self.scalar(field, nullable=field.is_nullable(self.version))
            if len(values) == len(names):
                return [values[name] for name in names], fields[index + 1 :]
        raise LocalProtocolError(f"{self}: {struct_.name} has no {', '.join(set(names) - set(values))}")

    def rest_of(self, struct_: StructSpec, fields: list[FieldSpec]) -> None:
        for field in fields:
            self.value(field)
        if self.source.is_flexible():
            self.tags(struct_)

    def counted(self, n: str) -> None:
        self.line(f"elements_max -= {n}")
        with self.block("if elements_max < 0:"):
            self.line("return TOO_MANY")

    def some_tags(self, t: str, struct_: StructSpec) -> None:
        if self._untagged:
            self.line("return TAGGED")
        else:
            super().some_tags(t, struct_)

    def not_of_fixed_size(self, field: FieldSpec, n: str, size: int) -> None:
        if self._untagged:
            with self.block(f"if p + {n} * {size} > received:"):
                self.line("raise IndexError")
            self.line("return TAGGED")
        else:
            super().not_of_fixed_size(field, n, size)


def _name(target: RequestedValue) -> str:
    return target.array if isinstance(target, EachOf | AnyBegins) else target.name


def _ends_early(message: str, received: int, end: int) -> Unread:
    if received >= end:
        raise _malformed(message, "it ends too early")
    return Unread.MORE_BYTES


def _malformed(message: str, reason: object) -> RemoteProtocolError:
    return RemoteProtocolError(f"{message}: {reason}")
