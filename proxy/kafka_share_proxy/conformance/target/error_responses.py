"""Responses with an error code, built from the message definitions: at the top, or for each entry of the request.

How it works: an array of the response is filled from an array of the request whose elements have a field in common
(`IDENTITIES`): a topic, a partition, a group. The same walk overwrites the codes of a response that exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec

Level = Literal["auto", "top", "entries"]
"""Fields that receive the code. "auto": the entries if there are any, else the top."""

IDENTITIES: Mapping[str, str] = {
    "CoordinatorKeys": "key",
    "GroupId": "group",
    "GroupIds": "group",
    "Groups": "group",
    "GroupsNames": "group",
    "Index": "partition",
    "Key": "key",
    "Name": "topic",
    "Partition": "partition",
    "PartitionIndex": "partition",
    "PartitionIndexes": "partition",
    "Partitions": "partition",
    "ResourceName": "resource",
    "ResourceType": "resource type",
    "Topic": "topic",
    "TopicId": "topic id",
    "TopicName": "topic",
    "TopicNames": "topic",
    "TransactionalId": "transaction",
}
"""Identity by the names of fields, and of arrays of plain values, in requests and responses."""

NO_OFFSET = -1


def build(key: int, version: int, request: Message, code: int, level: Level = "auto") -> Message | None:
    """Return a response with the code, or None if it has no field for it.

    `level` "entries" returns None if the request has no entries: a Fetch in a session, for example. Raises
    UnknownVersion.
    """
    response = _mirrored(registry.response_spec(key).root, _type_of_response(key, version), version, request)
    return response if overwrite(response, version, code, level) else None


def empty_response(key: int, version: int) -> Message:
    """Return a response with the defaults of its definition. Raises UnknownVersion."""
    return _type_of_response(key, version)()


def _type_of_response(key: int, version: int) -> type[Message]:
    message_class: type[Message] = registry.response(key, version).message_class
    return message_class


def overwrite(response: Message, version: int, code: int, level: Level = "auto") -> bool:
    """Set the error codes of a response. Return False if it has no field for the code."""
    entries = [holder for field in _arrays(response, version) for holder in _code_holders(field, version)]
    if level != "top" and entries:
        for holder, attribute in entries:
            setattr(holder, attribute, code)
        return True
    if level == "entries":
        return False
    tops = [spec.attribute for spec in _fields(type(response).SPEC, version) if _is_code(spec)]
    for attribute in tops[:1]:
        setattr(response, attribute, code)
    return bool(tops)


def _code_holders(message: Message, version: int) -> Iterator[tuple[Message, str]]:
    """Yield the innermost structures with an error code: partitions, or else topics or groups."""
    inner = [holder for each in _arrays(message, version) for holder in _code_holders(each, version)]
    if inner:
        yield from inner
        return
    for spec in _fields(type(message).SPEC, version):
        if _is_code(spec):
            yield message, spec.attribute
            return


def _arrays(message: Message, version: int) -> Iterator[Message]:
    for spec in _fields(type(message).SPEC, version):
        if spec.is_array and spec.struct is not None:
            yield from getattr(message, spec.attribute) or ()


def _mirrored(struct: StructSpec, kind: type[Any], version: int, source: Message, root: Any = None) -> Message:
    """Return a message whose arrays have the entries of the arrays of `source`."""
    root = kind if root is None else root
    entry_message: Message = kind()
    for spec in _fields(struct, version):
        if spec.is_array and spec.struct is not None:
            nested = getattr(root, spec.struct.name)
            setattr(entry_message, spec.attribute, list(_entries(spec.struct, nested, version, source, root)))
        elif spec.type == "int64" and (spec.name.endswith("Offset") or spec.name == "HighWatermark"):
            setattr(entry_message, spec.attribute, NO_OFFSET)
        elif spec.type == "records":
            setattr(entry_message, spec.attribute, b"")
        elif (identity := IDENTITIES.get(spec.name)) is not None and not spec.is_array:
            _copy(entry_message, spec, source, identity)
    return entry_message


def _copy(entry_message: Message, spec: FieldSpec, source: Message, identity: str) -> None:
    for other in type(source).SPEC.fields:
        if IDENTITIES.get(other.name) == identity and other.type == spec.type and not other.is_array:
            setattr(entry_message, spec.attribute, getattr(source, other.attribute))
            return


def _entries(struct: StructSpec, kind: type[Any], version: int, source: Message, root: Any) -> Iterator[Message]:
    """Yield an entry for each of the first array of `source` with the same identity."""
    identities = {IDENTITIES[spec.name]: spec for spec in _fields(struct, version) if _identifies(spec)}
    for other in type(source).SPEC.fields:
        values = getattr(source, other.attribute) if other.is_array else None
        if not values:
            continue
        if other.struct is None and (spec := identities.get(IDENTITIES.get(other.name, ""))) is not None:
            if spec.type == other.type:
                for value in values:
                    entry = _mirrored(struct, kind, version, kind(), root)
                    setattr(entry, spec.attribute, value)
                    yield entry
                return
        elif other.struct is not None and identities.keys() & _identities(other.struct):
            yield from (_mirrored(struct, kind, version, each, root) for each in values)
            return


def _identities(struct: StructSpec) -> set[str]:
    return {IDENTITIES[spec.name] for spec in struct.fields if _identifies(spec)}


def _identifies(spec: FieldSpec) -> bool:
    return spec.name in IDENTITIES and not spec.is_array


def _fields(struct: StructSpec, version: int) -> Iterator[FieldSpec]:
    return (spec for spec in struct.fields if version in spec.versions)


def _is_code(spec: FieldSpec) -> bool:
    return spec.type == "int16" and spec.name.endswith("ErrorCode") and not spec.is_array
