"""Lines of audit events, read as their schema says: what is not described there, or otherwise, is a mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kafka_share_proxy.audit.event_log import EventLog
from kafka_share_proxy.wire.definitions import specs

SCHEMA: Mapping[str, Any] = json.loads(specs.location().joinpath("internal", "AuditEvent.json").read_text("utf-8"))
KINDS: Mapping[str, Any] = SCHEMA["$defs"]
TYPES: Mapping[str, Any] = {"integer": int, "string": str, "null": type(None), "array": list, "object": dict}


def waiting(log: EventLog, proxy_id: str = "p", topic_name: Callable[[bytes], str] = bytes.hex) -> list[dict[str, Any]]:
    """Take all events that wait to be written from the log. Return them."""
    return events(log.take(1_000_000, proxy_id, "c", topic_name))


def events(lines: Iterable[bytes | str]) -> list[dict[str, Any]]:
    """Return the events of complete lines. AssertionError: one of them is none."""
    return [event(line) for line in lines]


def event(line: bytes | str) -> dict[str, Any]:
    """Return the event of one line. AssertionError: the schema does not allow it."""
    fields: dict[str, Any] = json.loads(line)
    mistakes = list(_mistakes(fields, SCHEMA, "event")) + list(_mistakes(fields, KINDS[fields["kind"]], fields["kind"]))
    expected = [*SCHEMA["properties"], *(name for name in KINDS[fields["kind"]]["properties"] if name != "kind")]
    if list(fields) != expected:
        mistakes.append(f"fields {list(fields)} in place of {expected}")
    assert not mistakes, f"{line!r}: {mistakes}"
    return fields


def _mistakes(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Compare a value with a schema. Supports the keywords that our schema uses."""
    types = schema.get("type", [])
    allowed = tuple(TYPES[name] for name in ([types] if isinstance(types, str) else types))
    if allowed and (not isinstance(value, allowed) or isinstance(value, bool)):
        yield f"{where}: {value!r} is no {types}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{where}: {value} is too small or too large"
    if isinstance(value, list):
        yield from _mistakes_in_list(value, schema, where)
    if isinstance(value, dict):
        yield from _mistakes_in_object(value, schema, where)


def _mistakes_in_list(value: list[Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    first = schema.get("prefixItems", [])
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{where}: {len(value)} elements"
    if schema.get("items") is False and len(value) > len(first):
        yield f"{where}: {len(value)} elements, {len(first)} are described"
    for index, each in enumerate(value):
        described = first[index] if index < len(first) else schema.get("items") or {}
        yield from _mistakes(each, described, f"{where}[{index}]")


def _mistakes_in_object(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    described = schema.get("properties", {})
    yield from (f"{where}: no {name}" for name in schema.get("required", ()) if name not in value)
    for name, each in value.items():
        if name in described:
            yield from _mistakes(each, described[name], f"{where}.{name}")
            continue
        rules = [rule for pattern, rule in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
        if rules:
            yield from _mistakes(each, rules[0], f"{where}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{where}: {name} is not described"
