"""Response that refuses a whole request, for any API (AbstractRequest.getErrorResponse of the APIs, clients 4.3).

Every error code is set, and what the request names has an entry: a topic of the response has the name or the id of a
topic in the request. Fields of both are compared by their meaning (`MEANING`), because their names differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec
from kafka_share_proxy.wire.errors import ErrorCode

MEANING: Mapping[str, str] = {
    **dict.fromkeys(("name", "topic", "topic_name", "topic_names", "user"), "name"),
    **dict.fromkeys(("index", "partition", "partition_index", "partition_id"), "partition"),
    **dict.fromkeys(("partitions", "partition_indexes"), "partition"),
    **dict.fromkeys(("group_id", "group_ids", "groups", "groups_names"), "group"),
    **dict.fromkeys(("key", "coordinator_keys"), "key"),
    **dict.fromkeys(("transactional_id", "transactional_ids"), "transactional_id"),
    **{
        name: name for name in ("topic_id", "member_id", "resource_type", "resource_name", "entity_type", "entity_name")
    },
}
"""Meaning of fields that identify an element. An array of numbers or strings has that of its elements."""


def refused_response(key: int, version: int, request: Any, code: ErrorCode, text: str) -> Message:
    """Return the response to a decoded request, with this error in it and in each of its entries."""
    request_spec, spec = registry.request_spec(key), registry.response_spec(key)
    root = registry.message(spec.name)
    response: Message = _Refusal(root, version, code, text).struct_of(spec.root, request_spec.root, request)
    return response


class _Refusal:
    """Structures of one response."""

    def __init__(self, root: Any, version: int, code: ErrorCode, text: str) -> None:
        self._root, self._version, self._code, self._text = root, version, code, text

    def struct_of(self, spec: StructSpec, request_spec: StructSpec | None, request: Any) -> Any:
        """Return a structure of the response for the element of the request from which it is made."""
        values: dict[str, Any] = {}
        for field in self._present(spec):
            if field.type == "records":
                values[field.attribute] = b""
            elif field.is_array:
                if field.struct and request_spec and self._has_entries(field, request_spec):
                    values[field.attribute] = list(self._entries(field.struct, request_spec, request))
            elif field.attribute.endswith("error_code"):
                values[field.attribute] = self._code
            elif field.attribute.endswith("error_message"):
                values[field.attribute] = self._text
            elif (same := _same(field, request_spec)) is not None:
                values[field.attribute] = getattr(request, same.attribute)
        kind = self._root if spec.name == self._root.__name__ else getattr(self._root, spec.name)
        return kind(**values)

    def _has_entries(self, array: FieldSpec, request_spec: StructSpec) -> bool:
        return _refuses(array.struct, self._version) or _is_in(array, request_spec)

    def _entries(self, entry: StructSpec, request_spec: StructSpec, request: Any) -> Iterator[Any]:
        """Yield an entry for each element of the request that has what identifies the entries.

        Elements within elements are used only if no array of this level fits (AlterReplicaLogDirs).
        """
        identity = self._identity(entry)
        arrays = [field for field in self._present(request_spec) if field.is_array]
        fitting = [array for array in arrays if self._fits(identity, array)]
        for array in fitting or arrays:
            for element in getattr(request, array.attribute) or ():
                if not fitting and array.struct is not None:
                    yield from self._entries(entry, array.struct, element)
                elif array.struct is not None:
                    yield self.struct_of(entry, array.struct, element)
                elif fitting:
                    yield self._of_value(entry, MEANING[array.attribute], element)

    def _fits(self, identity: set[str], array: FieldSpec) -> bool:
        if array.struct is None:
            return MEANING.get(array.attribute) in identity
        return not identity or bool(identity & self._identity(array.struct))

    def _identity(self, spec: StructSpec) -> set[str]:
        return {MEANING[each.attribute] for each in self._scalars(spec) if each.attribute in MEANING}

    def _of_value(self, entry: StructSpec, meaning: str, value: Any) -> Any:
        entry_struct = self.struct_of(entry, None, None)
        for field in self._scalars(entry):
            if MEANING.get(field.attribute) == meaning:
                setattr(entry_struct, field.attribute, value)
        return entry_struct

    def _scalars(self, spec: StructSpec) -> Iterator[FieldSpec]:
        return (field for field in self._present(spec) if not field.is_array)

    def _present(self, spec: StructSpec) -> Iterator[FieldSpec]:
        return (field for field in spec.fields if self._version in field.versions)


def _same(field: FieldSpec, request_spec: StructSpec | None) -> FieldSpec | None:
    """Return the field of the request with the same meaning and type."""
    meaning = MEANING.get(field.attribute)
    if request_spec is None or meaning is None:
        return None
    fields = (candidate for candidate in request_spec.fields if not candidate.is_array and candidate.type == field.type)
    return next((candidate for candidate in fields if MEANING.get(candidate.attribute) == meaning), None)


def _is_in(field: FieldSpec, request_spec: StructSpec) -> bool:
    """Return True if the request has the same array of structures."""
    return any(each.attribute == field.attribute and each.struct is not None for each in request_spec.fields)


def _refuses(spec: StructSpec | None, version: int) -> bool:
    """Return True if the structure or one within has an error code."""
    if spec is None:
        return False
    return any(
        version in field.versions and (field.attribute.endswith("error_code") or _refuses(field.struct, version))
        for field in spec.fields
    )
