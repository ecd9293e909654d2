"""Reads the address rewriting cases of this folder: one YAML file per API, a case per version it holds for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec, VersionRange

FOLDER = Path(__file__).parent
KEYS = {name: key for key, name in registry.API_KEYS.items()}
CORRELATION_ID = 0x01020304


@dataclass(frozen=True)
class Case:
    """A broker's response in one version, and the client's."""

    name: str
    key: int
    version: int
    response: dict[str, Any]
    reported: dict[str, Any] | None
    """Differing fields; None where the response cannot be used."""
    unbound: frozenset[int]
    known: dict[int, tuple[str, int]]
    all_topics: bool
    host: str

    def frame(self) -> bytes:
        """The broker's response, without size."""
        return self._encoded(self.response)[4:]

    def expected(self) -> bytes:
        """Return what the client gets, with size; the broker's response where nothing differs."""
        return self._encoded(self.response | (self.reported or {}))

    def _encoded(self, values: dict[str, Any]) -> bytes:
        spec = registry.response_spec(self.key)
        message = registry.message(spec.name)
        flexible = self.version in spec.flexible
        built = build(message, message, spec.root, values, self.version, flexible)
        return frames.response(self.key, self.version, CORRELATION_ID, built)


def build(message: Any, kind: Any, spec: StructSpec, values: dict[str, Any], version: int, flexible: bool) -> Any:
    """An object of the message class out of plain values; fields that the version lacks are left out."""
    known = {field.attribute: field for field in spec.fields}
    unknown = set(values) - set(known) - {"unknown_tags"}
    assert not unknown, f"{spec.name} has no {unknown}"
    fields = {
        name: value_of(message, known[name], value, version, flexible)
        for name, value in values.items()
        if name in known and version in known[name].versions
    }
    built = kind(**fields)
    if flexible and "unknown_tags" in values:
        built.unknown_tags = tuple((tag, bytes.fromhex(str(data))) for tag, data in free_tags(spec, values))
    return built


def free_tags(spec: StructSpec, values: dict[str, Any]) -> list[tuple[int, str]]:
    """The unknown tags of a case, moved up where the definition uses the number itself."""
    used = max((field.tag for field in spec.fields), default=-1) + 1
    return [(tag + used, data) for tag, data in values["unknown_tags"]]


def value_of(message: Any, field: FieldSpec, value: Any, version: int, flexible: bool) -> Any:
    if field.struct is not None and value is not None:
        kind = getattr(message, field.struct.name)
        if field.is_array:
            return [build(message, kind, field.struct, each, version, flexible) for each in value]
        return build(message, kind, field.struct, value, version, flexible)
    return bytes.fromhex(value) if field.type in {"uuid", "records", "bytes"} else value


def cases() -> Iterator[Case]:
    """All cases of all files."""
    for path in sorted(FOLDER.glob("*.yaml")):
        document = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        key = KEYS[document["api"]]
        for entry in document["cases"]:
            yield from expanded(key, entry)


def expanded(key: int, entry: dict[str, Any]) -> Iterator[Case]:
    first, last = registry.versions(key)
    expected = VersionRange.parse(entry.get("versions", f"{first}+"))
    for version in range(first, last + 1):
        if version in expected:
            yield Case(
                name=entry["name"],
                key=key,
                version=version,
                response=entry["answer"],
                reported=None if entry.get("unusable") else entry["told"],
                unbound=frozenset(entry.get("unbound", ())),
                known={node: tuple(address) for node, address in entry.get("known", {}).items()},
                all_topics=entry.get("all_topics", False),
                host=entry.get("host", "proxy.example"),
            )
