"""The codec against kio, an independent implementation from the same definitions: byte for byte, value for value."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafka_share_proxy.wire.definitions import registry, specs
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec, snake_case
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field
from kio.static.constants import EntityType

from tests.support.repeated import repeated
from tests.wire.samples import Samples, present

ROUNDS = 4
LATEST_S = 4_000_000_000
"""kio keeps times as datetime by way of a float: whole seconds survive, and nothing after the year 9999."""
KNOWN_ERRORS = frozenset(int(code) for code in ErrorCode)


class Hint(NamedTuple):
    """Kio's knowledge of one field."""

    kafka_type: str
    optional: bool
    nested: Any


def hints(entity: type[Any]) -> list[Hint]:
    """kio's fields of a structure, in order."""
    field_hints = []
    for field in dataclasses.fields(entity):
        kind = classify_field(field)
        nested = hints(kind.type_) if isinstance(kind, EntityField | EntityTupleField) else None
        field_hints.append(Hint(field.metadata.get("kafka_type", ""), "None" in str(field.type), nested))
    return field_hints


def restrict(_field: FieldSpec, hint: Hint, value: Any) -> Any:
    """kio's own types hold fewer values than the wire."""
    if hint.kafka_type == "error_code":
        return value if value in KNOWN_ERRORS else 7
    if hint.kafka_type == "datetime_i64":
        return -1 if hint.optional and value < 0 else abs(value) % LATEST_S * 1000
    if hint.kafka_type == "timedelta_i64":
        return value % LATEST_S * 1000
    return value


def pairs() -> Iterator[tuple[str, int, str]]:
    """Every message and version that both know, and kio's name of the message; kio's classes are slow to load."""
    for name in specs.names():
        spec = specs.load(name)
        suffix = {"request": "Request", "response": "Response"}.get(spec.type, "")
        kio_name = snake_case(name.removesuffix(suffix) if suffix else name)
        for version in range(spec.valid.first, spec.valid.last + 1):
            if EntityType[spec.type] in schema_name_map.get(kio_name, {}).get(version, {}):
                yield name, version, kio_name


PAIRS = list(pairs())


def same(ours: Any, theirs: Any) -> bool:
    """Return True if a value of ours is kio's, whatever type kio gives it."""
    if isinstance(theirs, uuid.UUID):
        return bool(ours == theirs.bytes)
    if isinstance(theirs, datetime.timedelta):
        return bool(ours == theirs // datetime.timedelta(milliseconds=1))
    if isinstance(theirs, datetime.datetime):
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return bool(ours == (theirs - epoch) // datetime.timedelta(milliseconds=1))
    if theirs is None:
        return ours in (None, -1, bytes(16))
    return bool(ours == theirs)


def assert_same(struct: StructSpec, version: int, ours: Any, theirs: Any) -> None:
    """Compare a structure field by field, by position: kio has other names."""
    for field, other in zip(present(struct, version), dataclasses.fields(theirs), strict=True):
        mine, its = getattr(ours, field.attribute), getattr(theirs, other.name)
        where = f"{struct.name}.{field.name}"
        if field.is_array and mine is not None:
            assert len(mine) == len(its), where
            for mine_one, its_one in zip(mine, its, strict=True):
                assert_value(field, version, mine_one, its_one, where)
        else:
            assert_value(field, version, mine, its, where)


def assert_value(field: FieldSpec, version: int, mine: Any, its: Any, where: str) -> None:
    """Compare one element or one single value."""
    if field.struct is not None and mine is not None:
        assert its is not None, where
        assert_same(field.struct, version, mine, its)
    else:
        assert same(mine, its), (where, mine, its)


@repeated("name, version, kio_name", PAIRS)
def test_same_bytes_and_values_as_kio(name: str, version: int, kio_name: str) -> None:
    """Kio reads our bytes as the same values and writes the same bytes, and we read them back."""
    spec, codec = specs.load(name), registry.codec(name, version)
    entity: type[Any] = load_entity_schema(kio_name, version, EntityType[spec.type])
    samples = Samples(f"{name}-{version}", restrict)
    hint = hints(entity)
    for _ in range(ROUNDS):
        message = samples.message(spec, version, hint)
        data = codec.encode(message)
        theirs, size = entity_reader(entity)(data, 0)
        assert size == len(data)
        assert_same(spec.root, version, message, theirs)
        written = bytearray()
        entity_writer(entity)(Sink(written), theirs)
        assert bytes(written) == data
        assert codec.decode(data) == message


class Sink:
    """Buffer to which kio writes."""

    def __init__(self, into: bytearray) -> None:
        self.write = into.extend


def test_kio_knows_most_of_it() -> None:
    """The comparison is no empty one: kio knows nearly every message, and all that this proxy serves."""
    known = {name for name, _, _ in PAIRS}
    assert len(PAIRS) >= 500
    assert {"ShareFetchRequest", "ShareFetchResponse", "MetadataResponse", "RequestHeader"} <= known
