"""Audit events: their kinds, fields and JSON values.

`FIELDS` has the fields of each kind in the order of `schemas/internal/AuditEvent.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, Protocol

VERSION = 2
HASH_SPACE = 1 << 32
"""End of the last range of hashes."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "acquire": ("first", "last", "attempt", "bytes", "lock_ms", "by"),
    "settle": (
        *("first", "last", "attempt", "t_acquire_ms", "outcome"),
        *("renews", "renew_ms", "start_offset", "by"),
    ),
    "renew": ("first", "last", "attempt", "t_acquire_ms", "renews", "renew_ms", "start_offset"),
    "member": ("client", "host"),
    "fetch": (
        *("reader", "view", "slot", "client", "lo", "hi", "ranges", "requests", "first", "last"),
        *("rows_in", "rows_out", "bytes_in", "bytes_out"),
    ),
    "view_member": ("view", "client", "group_protocol", "assignor", "offered", "members"),
    "load": (
        *("interval_ms", "rows", "bytes", "hold_ms", "sampled", "sampled_bytes", "null_keys"),
        *("looks", "sample_size", "effective_size", "buckets"),
    ),
    "hot_keys": ("interval_ms", "sampled", "sample_size", "null_keys", "error", "keys", "key_texts"),
    "commit": ("offset", "previous", "ranges", "ranges_total", "stored_ranges"),
    "plan_loaded": ("plan_id", "slots", "ranges"),
    "forced_release": ("records", "ranges"),
    "dead_letter": ("first", "last", "attempt", "outcome", "dead_letter_topic"),
    "delayed": ("first", "last", "attempt", "due_ms"),
    "blocked": ("key_hash", "behind", "waiting", "blocked_ms"),
    "handed_over": ("partitions", "held_back_ms", "records"),
    "taken_back": ("partitions", "held_back_ms", "records"),
    "offsets_altered": ("request", "start_offset", "previous"),
    "scope": ("subject", "sees", "reason"),
}
PROXY, BROKERS = "proxy", "brokers"
"""Values of `by`: the side that serves the group."""

COSTS = {"load": 2000, "hot_keys": 15, "plan_loaded": 30}
"""Cost of writing one event, relative to other kinds (half a microsecond)."""


class Place(NamedTuple):
    """Topic-partition of an event."""

    topic: bytes | str | None = None
    partition: int | None = None


NOWHERE = Place()


class LazyJson(Protocol):
    """A value that is converted to JSON when the event is written."""

    def json_value(self) -> Any: ...


def _json_value_of(value: LazyJson) -> Any:
    return value.json_value()


_encode = json.JSONEncoder(separators=(",", ":"), default=_json_value_of).encode


def as_json(value: Any) -> str:
    """Return a value as ASCII JSON. Types other than JSON's must implement `LazyJson`."""
    if value is None:
        return "null"
    return encode_basestring_ascii(value) if type(value) is str else _encode(value)
