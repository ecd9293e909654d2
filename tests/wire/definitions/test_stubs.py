"""The types of messages for mypy match the codecs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from kafka_share_proxy.wire.definitions import messages, registry, specs, stubs

from tests.wire.samples import Samples

BUFFERS = (bytes, bytearray, memoryview)
PLAIN = {"bool": bool, "int": int, "float": float, "str": str, "bytes": bytes, "Buffer": BUFFERS}
NAMES = (*specs.names(), *specs.internal_names())


@cache
def declared() -> dict[str, dict[str, ast.AnnAssign]]:
    """ "FetchRequest.FetchTopic" -> its fields as the stub declares them."""
    fields = {}
    for top in ast.parse(stubs.TARGET.read_text()).body:
        if isinstance(top, ast.ClassDef) and top.name != "_Records":
            fields[top.name] = fields_of(top)
            inner = [node for node in top.body if isinstance(node, ast.ClassDef)]
            fields.update({f"{top.name}.{node.name}": fields_of(node) for node in inner})
    return fields


def fields_of(node: ast.ClassDef) -> dict[str, ast.AnnAssign]:
    return {ast.unparse(line.target): line for line in node.body if isinstance(line, ast.AnnAssign)}


def fits(value: Any, annotation: ast.expr) -> bool:
    """True if a value is of the type that an annotation of the stub says."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return fits(value, left) or fits(value, right)
        case ast.Constant(value=None):
            return value is None
        case ast.Subscript(slice=element):
            return type(value) is list and all(fits(item, element) for item in value)
        case ast.Attribute():
            return type(value).__qualname__ == ast.unparse(annotation) and all_fit(value)
        case ast.Name(id="_Records"):
            return value is None or type(value) in BUFFERS
        case ast.Name(id="Tags"):
            return type(value) is tuple and all(type(tag) is int and type(data) is bytes for tag, data in value)
        case ast.Name(id=name):
            expected = PLAIN[name]
            return type(value) in (expected if isinstance(expected, tuple) else (expected,))
    raise AssertionError(ast.unparse(annotation))


def all_fit(value: Any) -> bool:
    """True if a structure has the fields that the stub declares, each of its type."""
    fields = declared()[type(value).__qualname__]
    assert {*type(value).FIELDS, "unknown_tags"} == set(fields)
    wrong = [name for name, line in fields.items() if not fits(getattr(value, name), line.annotation)]
    assert wrong == [], f"{value!r}"
    return True


def classes() -> Iterator[tuple[str, Any]]:
    for name in NAMES:
        message_class = getattr(messages, name)
        yield name, message_class
        for inner in specs.load(name).structs:
            yield f"{name}.{inner}", getattr(message_class, inner)


def test_the_stub_equals_the_definitions() -> None:
    assert stubs.TARGET.read_text() == stubs.text(), "run: python -m kafka_share_proxy.wire.definitions.stubs"


def test_every_structure_is_declared() -> None:
    assert {name for name, _ in classes()} == set(declared())


def test_new_messages_have_the_declared_types_and_defaults() -> None:
    for name, message_class in classes():
        value = message_class()
        assert all_fit(value)
        for field, line in declared()[name].items():
            assert line.value is not None
            if not isinstance(line.value, ast.Constant) or line.value.value is not ...:
                assert getattr(value, field) == ast.literal_eval(line.value), (name, field)


@pytest.mark.parametrize("seed", range(3))
def test_decoded_messages_have_the_declared_types(seed: int) -> None:
    """Every message in every version, null wherever it may be null."""
    for name in NAMES:
        spec = specs.load(name)
        for version in range(spec.valid.first, spec.valid.last + 1):
            codec = registry.codec(name, version)
            sample = Samples((seed, name, version), tags=True).message(spec, version)
            assert all_fit(codec.decode(codec.encode(sample)))


def test_a_wrong_type_is_found() -> None:
    """The check above can fail."""
    request = messages.ShareFetchRequest(group_id=b"bytes")  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="group_id"):
        all_fit(request)


def test_a_field_that_may_be_null_in_some_version_says_so() -> None:
    fields = declared()["ShareFetchRequest"]
    assert ast.unparse(fields["group_id"].annotation) == "str | None"
    assert ast.unparse(fields["topics"].annotation) == "list[ShareFetchRequest.FetchTopic]"
    assert ast.unparse(declared()["MetadataRequest"]["topics"].annotation).endswith(" | None")


def test_the_command_writes_the_stub(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stubs, "TARGET", tmp_path / "messages.pyi")
    assert stubs.main() == 0
    assert (tmp_path / "messages.pyi").read_text() == stubs.text()
