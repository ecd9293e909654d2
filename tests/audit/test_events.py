"""Events and their schema: the same kinds, the same fields, in the same order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka_share_proxy.audit.events import FIELDS, VERSION, as_json

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


class Buckets:
    def json_value(self) -> dict[str, list[int]]:
        return {"7": [1, 2]}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), ('a\n"é', '"a\\n\\"\\u00e9"'), ([(1, 2)], "[[1,2]]"), (Buckets(), '{"7":[1,2]}'), (True, "true")],
)
def test_a_value_is_json_in_ascii_without_spaces(value: Any, text: str) -> None:
    assert as_json(value) == text
    assert text.isascii()
    json.loads(text)


def test_a_value_without_a_json_form_is_an_error() -> None:
    with pytest.raises(AttributeError, match="json_value"):
        as_json(object())
