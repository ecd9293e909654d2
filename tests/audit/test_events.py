"""Events and their schema: the same kinds, the same fields, in the same order."""

from __future__ import annotations

import json

import pytest

from proxy.audit.events import FIELDS, VERSION, Event, Place, lines
from tests.support import audit_lines
from tests.support.audit_lines import KINDS, SCHEMA


def test_the_schema_has_the_kinds_and_fields_that_are_written() -> None:
    described = {kind: tuple(name for name in rule["properties"] if name != "kind") for kind, rule in KINDS.items()}
    assert described == FIELDS
    assert SCHEMA["properties"]["v"]["const"] == VERSION
    assert SCHEMA["properties"]["kind"]["enum"] == list(FIELDS)


def test_every_kind_and_every_field_is_described_and_required() -> None:
    for kind, rule in KINDS.items():
        assert rule["description"]
        assert rule["required"] == list(rule["properties"])
        for name, field in rule["properties"].items():
            assert name == "kind" or field["description"], (kind, name)
    assert SCHEMA["required"] == list(SCHEMA["properties"])


PLACE = Place(b"t", 0)


def written(kind: str, *values: object, place: Place = PLACE) -> bytes:
    (line,) = lines([Event(7, 1000, kind, place, "g", None, values)], "p", None, lambda topic: topic.decode() + "!")
    return line


def test_a_line_is_a_json_object_with_the_fields_of_every_event_first() -> None:
    line = written("forced_release", 10, 2)
    assert line.endswith(b"}\n")
    assert list(json.loads(line).items()) == [
        *(("v", 2), ("proxy_id", "p"), ("seq", 7), ("ts_ms", 1000), ("kind", "forced_release"), ("cluster", None)),
        *(("topic", "t!"), ("partition", 0), ("group", "g"), ("member", None), ("records", 10), ("ranges", 2)),
    ]


def test_a_topic_that_is_named_needs_no_look_up() -> None:
    assert audit_lines.event(written("forced_release", 1, 1, place=Place("named", None)))["topic"] == "named"


def test_an_event_with_too_few_values_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="not enough arguments"):
        written("forced_release", 10)


def test_names_are_escaped() -> None:
    """What clients call themselves cannot end a line."""
    line = written("scope", "views", "all", 'a\n"b"')
    assert line.count(b"\n") == 1
    assert json.loads(line)["reason"] == 'a\n"b"'


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "unheard"},
        {"records": -1},
        {"records": None},
        {"extra": 1},
        {"v": 1},
    ],
)
def test_the_reader_of_these_tests_sees_mistakes(wrong: dict[str, object]) -> None:
    """A test that reads lines with it can fail."""
    told = json.loads(written("forced_release", 10, 2)) | wrong
    with pytest.raises((AssertionError, KeyError)):
        audit_lines.event(json.dumps(told))
