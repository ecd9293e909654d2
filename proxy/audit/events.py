"""Audit events and their text: a JSON object a line, as `schemas/internal/AuditEvent.json` says.

An event is a tuple until it is written: whoever tells it formats nothing and looks nothing up. `FIELDS` has the fields
of each kind in the order of the schema; a test holds the two equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
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

HEAVY_KINDS = {"load": 50, "hot_keys": 5, "plan_loaded": 20}
"""What one event costs to write, in those of other kinds."""


class Place(NamedTuple):
    """What an event is about."""

    topic: bytes | str | None = None
    """Id or name."""
    partition: int | None = None


NOWHERE = Place()


class Event(NamedTuple):
    """One event, before it is written."""

    seq: int
    ts_ms: int
    kind: str
    place: Place
    group: str | None
    member: str | None
    values: tuple[Any, ...]
    """By FIELDS of the kind; what is no JSON has a method `told` that makes some."""

    @property
    def cost(self) -> int:
        """Of writing it."""
        return HEAVY_KINDS.get(self.kind, 1)


class Told(Protocol):
    """A value that is made JSON when the event is written."""

    def told(self) -> Any:
        """What stands in the line."""


def _told(value: Told) -> Any:
    return value.told()


_encode = json.JSONEncoder(separators=(",", ":"), default=_told).encode

_COMMON = ("v", "proxy_id", "seq", "ts_ms", "kind", "cluster", "topic", "partition", "group", "member")
_TEMPLATES = {
    kind: "{" + ",".join(f'"{name}":%s' for name in (*_COMMON, *fields)) + "}\n" for kind, fields in FIELDS.items()
}
"""A line of each kind, but for its values: writing one takes half as long as with a dict."""


def lines(
    events: Iterable[Event], proxy_id: str, cluster: str | None, topic_name: Callable[[bytes], str]
) -> list[bytes]:
    """Events as JSON, a line each, line end included."""
    return [_line(event, proxy_id, cluster, topic_name) for event in events]


def _line(event: Event, proxy_id: str, cluster: str | None, topic_name: Callable[[bytes], str]) -> bytes:
    """Raises TypeError: values that are too many or too few for the kind."""
    seq, ts_ms, kind, (topic, partition), group, member, values = event
    name = topic_name(topic) if isinstance(topic, bytes) else topic
    told = (VERSION, proxy_id, seq, ts_ms, kind, cluster, name, partition, group, member, *values)
    return (_TEMPLATES[kind] % tuple([each if type(each) is int else _json(each) for each in told])).encode()


def _json(value: Any) -> str:
    if value is None:
        return "null"
    return encode_basestring_ascii(value) if type(value) is str else _encode(value)
