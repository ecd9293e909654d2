"""Every API by key: its versions, its message classes, its codecs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from proxy.wire import messages, specs
from proxy.wire.compiler import Codec
from proxy.wire.errors import ProxyError
from proxy.wire.specs import MessageSpec, VersionRange


class UnknownVersion(ProxyError, KeyError):
    """The definitions have no such API or no such version of it."""

    def __str__(self) -> str:
        return str(self.args[0])


def _index() -> dict[int, tuple[str, VersionRange, tuple[str, ...]]]:
    found = {}
    for name in specs.names():
        if name.endswith("Request"):
            raw = specs.document(name)
            valid = VersionRange.parse(raw["validVersions"])
            if valid:
                found[raw["apiKey"]] = (name.removesuffix("Request"), valid, tuple(raw["listeners"]))
    return dict(sorted(found.items()))


_INDEX = _index()

API_KEYS: Mapping[int, str] = {key: name for key, (name, _, _) in _INDEX.items()}
"""API key -> name without "Request", of every API that still has a version."""


def versions(key: int) -> tuple[int, int]:
    """The lowest and highest version of an API in the definitions.

    Raises:
        UnknownVersion: there is no such API.
    """
    valid = _entry(key)[1]
    return valid.first, valid.last


def listeners(key: int) -> tuple[str, ...]:
    """Where the API is served: "broker", "controller" or both.

    Raises:
        UnknownVersion: there is no such API.
    """
    return _entry(key)[2]


def request_spec(key: int) -> MessageSpec:
    """The definition of the API's request. Raises UnknownVersion."""
    return specs.load(f"{_entry(key)[0]}Request")


def response_spec(key: int) -> MessageSpec:
    """The definition of the API's response. Raises UnknownVersion."""
    return specs.load(f"{_entry(key)[0]}Response")


def message(name: str) -> Any:
    """The class of a message by its schema name ("ShareFetchRequest"); of all its versions.

    Raises:
        SchemaError: there is no such definition.
    """
    return messages.message_class(name)


@cache
def codec(name: str, version: int) -> Codec:
    """The codec of any message by its schema name, record schemas included.

    Raises:
        SchemaError: there is no such definition. UnknownVersion: it has no such version.
    """
    spec = specs.load(name)
    if version not in spec.valid:
        raise UnknownVersion(f"{name} has no version {version}")
    return Codec(spec, version, message(name))


@cache
def request(key: int, version: int) -> Codec:
    """The codec of a request. Raises UnknownVersion."""
    return codec(f"{_entry(key)[0]}Request", version)


@cache
def response(key: int, version: int) -> Codec:
    """The codec of a response. Raises UnknownVersion."""
    return codec(f"{_entry(key)[0]}Response", version)


def _entry(key: int) -> tuple[str, VersionRange, tuple[str, ...]]:
    try:
        return _INDEX[key]
    except KeyError:
        raise UnknownVersion(f"there is no API with key {key}") from None
