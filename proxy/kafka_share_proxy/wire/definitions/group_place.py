"""Position of the group id in requests, from the definitions, for the C walk."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kafka_share_proxy.wire.codec.source import Source
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import LocalProtocolError


class GroupPlace(NamedTuple):
    """Position of the group id in a request (`forwarding/walk/_walk.c`)."""

    is_flexible: bool
    is_listed: bool
    """True if it is the first field of the elements of an array."""
    strings_before: int
    """Number of strings that precede the group id, or the array."""


@cache
def group_place(key: int, version: int) -> GroupPlace:
    """Return the position of the group id.

    Raises UnknownVersion, or LocalProtocolError if there is no group id, or other fields than strings precede it.
    """
    spec = registry.versioned_request_spec(key, version)
    source = Source(spec, version)
    is_flexible = version in spec.flexible
    for before, field in enumerate(source.plain_fields(spec.root)):
        if field.entity == "groupId" and not field.is_array:
            return GroupPlace(is_flexible, is_listed=False, strings_before=before)
        if field.struct is not None and field.is_array and source.plain_fields(field.struct)[0].entity == "groupId":
            return GroupPlace(is_flexible, is_listed=True, strings_before=before)
        if field.type != "string" or field.is_array:
            break
    raise LocalProtocolError(f"{spec.name} v{version} has no group id after strings alone")
