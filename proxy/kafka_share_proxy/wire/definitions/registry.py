"""Registry of the APIs by key: versions, message classes and codecs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kafka_share_proxy.wire.codec.compiler import Codec, M
from kafka_share_proxy.wire.definitions import message_classes, specs
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.specs import MessageSpec, VersionRange
from kafka_share_proxy.wire.errors import ProxyError


class UnknownVersion(ProxyError, KeyError):
    """The API, or the version of the API, is not in the definitions."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Entry(NamedTuple):
    """Name, versions and listeners of an API. The fields of its messages need not be parsed for them."""

    name: str
    valid: VersionRange
    listeners: tuple[str, ...]


API_KEYS: Mapping[int, str] = {int(key): key.name.title().replace("_", "") for key in ApiKey}
"""Name without "Request", for every API that still has a version. No definition is read for it: a client imports it."""


def read_definitions() -> None:
    """Read what is looked up of every API. Processes that are forked then share it, and need no files for it."""
    for key in API_KEYS:
        _entry(key)


def versions(key: int) -> tuple[int, int]:
    """Return the lowest and highest version. Raises UnknownVersion."""
    valid = _entry(key).valid
    return valid.first, valid.last


def listeners(key: int) -> tuple[str, ...]:
    """Listeners that serve the API: "broker", "controller" or both. Raises UnknownVersion."""
    return _entry(key).listeners


def request_spec(key: int) -> MessageSpec:
    """Raises UnknownVersion."""
    return specs.load(f"{_entry(key).name}Request")


def versioned_request_spec(key: int, version: int) -> MessageSpec:
    """Raises UnknownVersion, also if the request lacks this version."""
    return _with_version(request_spec(key), version)


def versioned_response_spec(key: int, version: int) -> MessageSpec:
    """Raises UnknownVersion, also if the response lacks this version."""
    return _with_version(response_spec(key), version)


def response_spec(key: int) -> MessageSpec:
    """Raises UnknownVersion."""
    return specs.load(f"{_entry(key).name}Response")


def response_mentions(key: int, word: str) -> bool:
    """True if the text of the response's definition contains the word (`specs.mentions`). Raises UnknownVersion."""
    return specs.mentions(f"{_entry(key).name}Response", word)


def message(name: str) -> Any:
    """Return the class of a message whose name is known only at run time. Raises SchemaError."""
    return message_classes.message_class(name)


@cache
def codec(name: str, version: int) -> Codec[Any]:
    """Raises SchemaError or UnknownVersion."""
    return Codec(_with_version(specs.load(name), version), version, message(name))


@cache
def request(key: int, version: int) -> Codec[Any]:
    """Raises UnknownVersion."""
    return codec(f"{_entry(key).name}Request", version)


@cache
def response(key: int, version: int) -> Codec[Any]:
    """Raises UnknownVersion."""
    return codec(f"{_entry(key).name}Response", version)


def codec_of(message: type[M], version: int) -> Codec[M]:
    """Raises UnknownVersion."""
    return codec(message.__name__, version)


def _with_version(spec: MessageSpec, version: int) -> MessageSpec:
    if version not in spec.valid:
        raise UnknownVersion(f"{spec.name} has no version {version}")
    return spec


@cache
def _entry(key: int) -> _Entry:
    try:
        name = API_KEYS[key]
    except KeyError:
        raise UnknownVersion(f"there is no API with key {key}") from None
    definition = specs.document(f"{name}Request")
    return _Entry(name, VersionRange.parse(definition["validVersions"]), tuple(definition["listeners"]))
