"""Kafka's message definitions as frozen values. Only this module knows the location of `schemas/`.

The format is Kafka's own (common/message/README.md of the clients). Unknown elements are refused (wire/README.md rule
2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import ZERO_UUID

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

FIXED_SIZES: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}

VARIABLE_TYPES = frozenset({"string", "bytes", "records"})

LATEST = 32767
"""Upper end of an open range: a version is an int16."""

_MESSAGE_KEYS = frozenset(
    {"about", "apiKey", "commonStructs", "fields", "flexibleVersions", "latestVersionUnstable", "listeners", "name"}
    | {"type", "validVersions"}
)
_MESSAGE_TYPES = frozenset({"request", "response", "header", "data"})
_FIELD_KEYS = frozenset(
    {"about", "default", "entityType", "fields", "flexibleVersions", "ignorable", "mapKey", "name"}
    | {"nullableVersions", "tag", "taggedVersions", "type", "versions", "zeroCopy"}
)
_STRUCT_KEYS = frozenset({"about", "fields", "name", "versions"})
_STRING_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')
_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class SchemaError(ProxyError):
    """A message definition that is invalid or has new elements of Kafka's format."""


class VersionRange(NamedTuple):
    """Versions first..last, both included; empty when last < first."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __bool__(self) -> bool:
        return self.first <= self.last

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        if text == "none":
            return NO_VERSIONS
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if match is None:
            raise SchemaError(f"not a version range: {text!r}")
        first = int(match[1])
        last = LATEST if match[2] else int(match[3] or first)
        return cls(first, last)


NO_VERSIONS = VersionRange(0, -1)


class StructSpec(NamedTuple):
    """Structure: the message itself, or a named part of it."""

    name: str
    versions: VersionRange
    fields: tuple[FieldSpec, ...]


class FieldSpec(NamedTuple):
    """One field in all its versions."""

    name: str
    """The name as Kafka's schemas spell it."""
    attribute: str
    """Name in snake_case."""
    type: str
    """A key of FIXED_SIZES, a member of VARIABLE_TYPES, or "struct". For an array, of its elements."""
    is_array: bool
    struct: StructSpec | None
    versions: VersionRange
    nullable: VersionRange
    tagged: VersionRange
    tag: int
    """-1 for a field that is never tagged."""
    flexible: VersionRange | None
    """Override of the message's flexible versions (RequestHeader.ClientId)."""
    default: Any
    """Value of an absent field: a scalar, ZERO_UUID, b"", None, [] or "struct"."""
    ignorable: bool
    """True if the value may be dropped silently when the version lacks the field."""
    entity: str
    """Kafka's entityType ("brokerId", "groupId"...), or empty."""

    def is_nullable(self, version: int) -> bool:
        return version in self.nullable

    def is_tagged(self, version: int) -> bool:
        return version in self.tagged


class MessageSpec(NamedTuple):
    """One message in all its versions."""

    name: str
    type: str
    """request, response, header or data."""
    api_key: int
    """-1 for a message without an API."""
    listeners: tuple[str, ...]
    """Empty if the message is not a request."""
    valid: VersionRange
    flexible: VersionRange
    root: StructSpec
    structs: Mapping[str, StructSpec]
    """All structures below the root, by their schema name, which is unique in a message."""


def location() -> Path | Traversable:
    """Return the folder inside the installed package, or next to it in a checkout."""
    package = Path(__file__).parents[2]
    for folder in (package / "schemas", package.parents[1] / "schemas"):
        if folder.is_dir():
            return folder
    from importlib.resources import files  # for a package in a zip file, as on Spark; 1.5 MiB of an idle proxy

    inside = files("kafka_share_proxy").joinpath("schemas")
    if not inside.is_dir():
        raise SchemaError("the message definitions (kafka_share_proxy/schemas) are not part of this installation")
    return inside


NO_MESSAGES = {"AuditEvent"}
"""Files in the folder that are not message definitions: JSON Schemas of lines of text."""


def names() -> tuple[str, ...]:
    return _names_in(location())


def internal_names() -> tuple[str, ...]:
    return _names_in(location().joinpath("internal"))


def _names_in(folder: Path | Traversable) -> tuple[str, ...]:
    message_names = {entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")}
    return tuple(sorted(message_names - NO_MESSAGES))


def strip_comments(text: str) -> str:
    return _STRING_OR_COMMENT.sub(lambda match: match[1] or "", text) if "//" in text else text


def document(name: str) -> dict[str, Any]:
    """Raises SchemaError if there is no message of that name."""
    loaded: dict[str, Any] = json.loads(strip_comments(_text(name)))
    return loaded


def mentions(name: str, word: str) -> bool:
    """True if the text of a definition contains the word in any case. Raises SchemaError.

    It is not parsed, which takes 0.7 ms.
    """
    return word in _text(name).lower()


def _text(name: str) -> str:
    text = _texts().get(name)
    if text is None:
        raise SchemaError(f"no message definition is called {name!r}")
    return text


@cache
def _texts() -> Mapping[str, str]:
    """Read all definitions, 190 kB: later, no descriptor may be free, or the files may be of another release."""
    folders = (location().joinpath("internal"), location())
    paths = (path for folder in folders for path in folder.iterdir() if path.name.endswith(".json"))
    return {path.name.removesuffix(".json"): path.read_bytes().decode() for path in paths}


@cache
def load(name: str) -> MessageSpec:
    """Raises SchemaError."""
    return parse(document(name))


def parse(raw: Mapping[str, Any]) -> MessageSpec:
    """Parse one JSON definition. Raises SchemaError."""
    name = str(raw.get("name", "?"))
    _only(raw, _MESSAGE_KEYS, name)
    if raw.get("type") not in _MESSAGE_TYPES:
        raise SchemaError(f"{name}: unknown message type {raw.get('type')!r}")
    valid = VersionRange.parse(raw["validVersions"])
    structs: dict[str, StructSpec] = {}
    common = {entry["name"]: entry for entry in raw.get("commonStructs", ())}
    reader = _Reader(name, common, structs)
    root = StructSpec(name=name, versions=valid, fields=reader.fields(raw.get("fields", ()), name))
    return MessageSpec(
        name=name,
        type=raw["type"],
        api_key=raw.get("apiKey", -1),
        listeners=tuple(raw.get("listeners", ())),
        valid=valid,
        flexible=VersionRange.parse(raw.get("flexibleVersions", "none")),
        root=root,
        structs=structs,
    )


def snake_case(name: str) -> str:
    return _WORD_BORDER.sub("_", name).lower()


def _only(raw: Mapping[str, Any], allowed: frozenset[str], where: str) -> None:
    unknown = sorted(set(raw) - allowed)
    if unknown:
        raise SchemaError(f"{where}: unknown keys {', '.join(unknown)}")


class _Reader:
    def __init__(self, message: str, common: Mapping[str, Any], structs: dict[str, StructSpec]) -> None:
        self._message = message
        self._common = common
        self._structs = structs
        self._open: list[str] = []

    def fields(self, raws: Iterator[Any] | Any, where: str) -> tuple[FieldSpec, ...]:
        """Raises SchemaError if two fields share an attribute name or a tag."""
        parsed = tuple(self._field(raw, where) for raw in raws)
        if len({field.attribute for field in parsed}) != len(parsed):
            raise SchemaError(f"{where}: two fields have the same name")
        tags = [field.tag for field in parsed if field.tag >= 0]
        if len(set(tags)) != len(tags):
            raise SchemaError(f"{where}: two fields have the same tag")
        return parsed

    def _field(self, raw: Mapping[str, Any], where: str) -> FieldSpec:
        where = f"{where}.{raw.get('name', '?')}"
        _only(raw, _FIELD_KEYS, where)
        declared = str(raw["type"])
        is_array = declared.startswith("[]")
        element = declared.removeprefix("[]")
        versions = VersionRange.parse(raw["versions"])
        struct = None
        if element not in FIXED_SIZES and element not in VARIABLE_TYPES:
            struct = self._struct(element, raw.get("fields"), versions, where)
            element = "struct"
        tagged = VersionRange.parse(raw.get("taggedVersions", "none"))
        if bool(tagged) != ("tag" in raw):
            raise SchemaError(f"{where}: tag and taggedVersions belong together")
        nullable = VersionRange.parse(raw.get("nullableVersions", "none"))
        if nullable and not is_array and element in FIXED_SIZES:
            raise SchemaError(f"{where}: {element} cannot be null")
        own_flexible = raw.get("flexibleVersions")
        return FieldSpec(
            name=raw["name"],
            attribute=snake_case(raw["name"]),
            type=element,
            is_array=is_array,
            struct=struct,
            versions=versions,
            nullable=nullable,
            tagged=tagged,
            tag=int(raw.get("tag", -1)),
            flexible=None if own_flexible is None else VersionRange.parse(own_flexible),
            default=_default(raw.get("default"), element, is_array, where),
            ignorable=bool(raw.get("ignorable", False)),
            entity=str(raw.get("entityType", "")),
        )

    def _struct(self, name: str, raws: Any, versions: VersionRange, where: str) -> StructSpec:
        if raws is None:
            parsed = self._structs.get(name)
            if parsed is not None:
                return parsed
            if name not in self._common:
                raise SchemaError(f"{where}: unknown type {name!r}")
            _only(self._common[name], _STRUCT_KEYS, name)
            raws = self._common[name]["fields"]
            versions = VersionRange.parse(self._common[name]["versions"])
        elif name in self._structs:
            raise SchemaError(f"{where}: the structure {name} is defined twice")
        if name in self._open:
            raise SchemaError(f"{where}: the structure {name} contains itself")
        self._open.append(name)
        struct = StructSpec(name=name, versions=versions, fields=self.fields(raws, f"{self._message}.{name}"))
        self._open.pop()
        self._structs[name] = struct
        return struct


def _default(raw: Any, element: str, is_array: bool, where: str) -> Any:
    """Parse a number, a boolean or a string ("null", "true", "0x7fffffff")."""
    if raw == "null" and (is_array or element not in FIXED_SIZES):
        return None
    if is_array or element == "struct" or element in {"bytes", "records", "uuid"}:
        if raw is not None:
            raise SchemaError(f"{where}: default {raw!r} is not understood")
        if is_array:
            return []
        return {"struct": "struct", "bytes": b"", "records": None, "uuid": ZERO_UUID}[element]
    if element == "string":
        return "" if raw is None else str(raw)
    return _scalar(raw, element, where)


def _scalar(raw: Any, element: str, where: str) -> int | bool | float:
    text = "" if raw is None else str(raw).lower()
    try:
        if element == "bool":
            return {"": False, "false": False, "true": True}[text]
        if element == "float64":
            return float(text or 0)
        return int(text or "0", 0)
    except (KeyError, ValueError):
        raise SchemaError(f"{where}: default {raw!r} is not understood") from None
