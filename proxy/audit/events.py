"""Audit events: the kinds, their fields, and values of them as JSON, as `schemas/internal/AuditEvent.json` says.

`FIELDS` has the fields of each kind in the order of the schema; a test holds the two equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple, Protocol

VERSION = 2
HASH_SPACE = 1 << 32
"""Where ranges of all hashes end."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    "acquire": ("first", "last", "attempt", "bytes", "lock_ms", "by"),
    "settle": (
        *("first", "last", "attempt", "t_acquire_ms", "outcome"),
        *("renews", "renew_ms", "start_offset", "by"),
    ),
    "renew": ("first", "last", "attempt", "t_acquire_ms", "renews", "renew_ms", "start_offset"),
    "fetch": (
        *("reader", "view", "slot", "client", "lo", "hi", "ranges", "requests", "first", "last"),
        *("rows_in", "rows_out", "bytes_in", "bytes_out"),
    ),
    "load": ("interval_ms", "rows", "bytes", "hold_ms", "sampled", "sampled_bytes", "null_keys", "buckets"),
    "hot_keys": ("interval_ms", "sampled", "null_keys", "error", "keys"),
    "commit": ("offset", "previous", "ranges", "ranges_total", "stored_ranges"),
    "plan_loaded": ("plan_id", "slots", "ranges"),
    "forced_release": ("records", "ranges"),
    "offsets_altered": ("request", "start_offset", "previous"),
    "scope": ("subject", "sees", "reason"),
}
PROXY, BROKERS = "proxy", "brokers"
"""`by`: who serves the group."""

COSTS = {"load": 2000, "hot_keys": 15, "plan_loaded": 30}
"""What one event costs to write, in those of other kinds, which take half a microsecond."""


class Place(NamedTuple):
    """What an event is about."""

    topic: bytes | str | None = None
    """Id or name."""
    partition: int | None = None


NOWHERE = Place()


class Told(Protocol):
    """A value that is made JSON when the event is written."""

    def told(self) -> Any:
        """What stands in the line."""


def _told(value: Told) -> Any:
    return value.told()


_encode = json.JSONEncoder(separators=(",", ":"), default=_told).encode


def as_json(value: Any) -> str:
    """A value of an event, in ASCII; what is no JSON has a method `told` that makes some."""
    if value is None:
        return "null"
    return encode_basestring_ascii(value) if type(value) is str else _encode(value)
