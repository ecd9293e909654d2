"""Reading message definitions: what is understood, and that nothing else is let through."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kafka_share_proxy.wire.definitions import specs
from kafka_share_proxy.wire.definitions.specs import LATEST, NO_VERSIONS, SchemaError, VersionRange
from kafka_share_proxy.wire.values import ZERO_UUID

PLAIN: dict[str, Any] = {
    "type": "data",
    "name": "Thing",
    "validVersions": "0-2",
    "flexibleVersions": "2+",
    "fields": [{"name": "Inner", "type": "[]Part", "versions": "0+", "fields": []}],
}


def with_field(**field: Any) -> specs.FieldSpec:
    """The field as read from a definition that has only it."""
    raw = {**PLAIN, "fields": [{"name": "F", "versions": "0+", **field}]}
    return specs.parse(raw).root.fields[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", (3, 3)), ("3+", (3, LATEST)), ("0-5", (0, 5)), ("none", NO_VERSIONS)],
)
def test_version_ranges_are_parsed(text: str, expected: tuple[int, int]) -> None:
    """One version, an open range, a closed range, none."""
    assert VersionRange.parse(text) == expected


def test_a_version_range_contains_both_its_ends() -> None:
    """Both ends belong to a range; an empty one contains nothing and is false."""
    assert 3 in VersionRange(3, 5)
    assert 5 in VersionRange(3, 5)
    assert 6 not in VersionRange(3, 5)
    assert 0 not in NO_VERSIONS
    assert not NO_VERSIONS


@pytest.mark.parametrize("text", ["", "3-", "-3", "3..5", "v3", "3 +"])
def test_other_version_texts_are_refused(text: str) -> None:
    """A range in a new notation must not be guessed."""
    with pytest.raises(SchemaError):
        VersionRange.parse(text)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"type": "novelty"},
        {"novelKey": 1},
        {"fields": [{"name": "F", "type": "int32", "versions": "0+", "novelKey": 1}]},
        {"fields": [{"name": "F", "type": "int128", "versions": "0+"}]},
        {"fields": [{"name": "F", "type": "int32", "versions": "0+", "nullableVersions": "0+"}]},
        {"fields": [{"name": "F", "type": "int32", "versions": "0+", "tag": 0}]},
        {"fields": [{"name": "F", "type": "int32", "versions": "0+", "taggedVersions": "2+"}]},
        {"fields": [{"name": "F", "type": "int32", "versions": "0+", "default": "many"}]},
        {"fields": [{"name": "F", "type": "bytes", "versions": "0+", "default": "x"}]},
        {"fields": [{"name": "F", "type": "int32", "versions": "0+"}] * 2},
        {"fields": [{"name": "A", "type": "S", "versions": "0+"}]},
        {"fields": [{"name": n, "type": "S", "versions": "0+", "fields": []} for n in "AB"]},
        {"fields": [{"name": n, "type": "int8", "versions": "2+", "taggedVersions": "2+", "tag": 1} for n in "AB"]},
    ],
)
def test_unknown_elements_of_a_definition_are_refused(spoiled: dict[str, Any]) -> None:
    """An upgrade with a new notion must stop at the parser, not reach the wire."""
    specs.parse(PLAIN)
    with pytest.raises(SchemaError):
        specs.parse({**copy.deepcopy(PLAIN), **spoiled})


def test_a_structure_cannot_contain_itself() -> None:
    """Straight-line code cannot be written for it."""
    common = [{"name": "S", "versions": "0+", "fields": [{"name": "S", "type": "[]S", "versions": "0+"}]}]
    with pytest.raises(SchemaError, match="contains itself"):
        specs.parse({**PLAIN, "commonStructs": common, "fields": [{"name": "A", "type": "S", "versions": "0+"}]})


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"type": "int32"}, 0),
        ({"type": "int32", "default": "0x7fffffff"}, 0x7FFFFFFF),
        ({"type": "int64", "default": "-1"}, -1),
        ({"type": "int32", "default": 5}, 5),
        ({"type": "bool", "default": "true"}, True),
        ({"type": "bool", "default": False}, False),
        ({"type": "float64"}, 0.0),
        ({"type": "string"}, ""),
        ({"type": "string", "default": "null", "nullableVersions": "0+"}, None),
        ({"type": "bytes"}, b""),
        ({"type": "records"}, None),
        ({"type": "uuid"}, ZERO_UUID),
        ({"type": "[]int32"}, []),
        ({"type": "[]int32", "default": "null", "nullableVersions": "0+"}, None),
    ],
)
def test_defaults_of_definitions_are_parsed(field: dict[str, Any], expected: object) -> None:
    """Defaults are written as numbers, booleans and strings; without one, Kafka's default of the type holds."""
    read = with_field(**field)
    assert read.default == expected
    assert type(read.default) is type(expected)


def test_comments_are_stripped_outside_strings_only() -> None:
    """`//` begins a comment, except in a string."""
    assert specs.strip_comments('{"a": "x//y", // gone\n "b": "\\"//"}') == '{"a": "x//y", \n "b": "\\"//"}'


def test_every_definition_is_understood() -> None:
    """All definitions of Kafka's release are read, requests and responses in pairs of the same versions."""
    loaded = {name: specs.load(name) for name in specs.names()}
    requests = {spec.api_key: spec for spec in loaded.values() if spec.type == "request"}
    responses = {spec.api_key: spec for spec in loaded.values() if spec.type == "response"}
    assert len(loaded) == 203
    assert requests.keys() == responses.keys()
    assert all(requests[key].valid == responses[key].valid for key in requests)
    assert all(requests[key].flexible == responses[key].flexible for key in requests)


def test_unknown_names_are_refused() -> None:
    """A misspelt message is an error with its name."""
    with pytest.raises(SchemaError, match="NoSuchRequest"):
        specs.load("NoSuchRequest")


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("ThrottleTimeMs", "throttle_time_ms"), ("ISRNodes", "isr_nodes"), ("validateOnly", "validate_only")],
)
def test_attribute_names_are_in_snake_case(name: str, attribute: str) -> None:
    """Kafka's names in snake_case."""
    assert specs.snake_case(name) == attribute


def test_a_definition_is_available_when_no_file_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy without a free descriptor continues, and so does one whose package was replaced under it."""
    specs.document("MetadataRequest")

    def no_files() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(specs, "location", no_files)
    assert specs.document("ListOffsetsRequest")["apiKey"] == 2
    assert specs.document("TakeoverKey")["fields"], "one of our own"
