"""Null fields of a response, recorded in two worlds by the path of the field.

The schemas allow null where brokers never send it, and Kafka's own clients expect what brokers send: null where a
broker leaves a list empty is a NullPointerException in the Java client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.definitions.specs import StructSpec

from tests.support.blocking_connection import Connection
from tests.support.raw import KEYS, Raw

NULL, EMPTY, GIVEN = "null", "empty", "given"
Paths = Mapping[str, frozenset[str]]
"""Path of a field, without list indexes -> its observed values. Empty lists count as given, as clients take them."""


class Requested:
    """One world: its requests, in every version that both worlds have, and the null fields."""

    def __init__(self, raw: Raw, common: Mapping[str, range]) -> None:
        self.raw = raw
        self.reported: dict[str, Paths] = {}
        self.apis: set[str] = set()
        self._common = common

    def tell(
        self,
        situation: str,
        api: str,
        *,
        on: Connection | None = None,
        since: int = 0,
        only: Callable[[Any], None] = lambda _response: None,
        **values: Any,
    ) -> Any:
        """Ask in every version from `since` on; returns the response of the newest one.

        `only` takes out of each response what is not looked at.
        """
        response = None
        for version in (each for each in self._common[api] if each >= since):
            known = in_version(registry.request_spec(KEYS[api]).root, values, version)
            response = self.raw.send_request(api, version, on=on, **known)
            only(response)
            self.note(situation, api, version, response)
        assert response is not None, f"both worlds serve no version of {api}"
        return response

    def note(self, situation: str, api: str, version: int, response: Message) -> None:
        """Write down what was null in a response."""
        self.apis.add(api)
        self.reported[f"{api} v{version}, {situation}"] = nulls(response)


def in_version(spec: StructSpec, values: Mapping[str, Any], version: int) -> dict[str, Any]:
    """The values without those of fields that this version of the message does not have."""
    fields = {field.attribute: field for field in spec.fields}
    known = {name: value for name, value in values.items() if version in fields[name].versions}
    for name, value in known.items():
        inner = fields[name].struct
        if inner is not None and isinstance(value, list):
            known[name] = [in_version(inner, each, version) for each in value]
    return known


def nulls(message: Message) -> Paths:
    """The fields of a response that may be null by their kind."""
    kinds_by_path: dict[str, set[str]] = defaultdict(set)
    for path, value in _fields("", message):
        kinds_by_path[path].add(NULL if value is None else EMPTY if value == "" else GIVEN)
    return {path: frozenset(kinds) for path, kinds in kinds_by_path.items()}


def _fields(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Message):
        for name in value.FIELDS:
            inner = getattr(value, name)
            yield f"{path}/{name}", inner
            yield from _fields(f"{path}/{name}", inner)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _fields(path, each)


def differences(native: Mapping[str, Paths], proxy: Mapping[str, Paths]) -> list[str]:
    """Return what is null in one world only; a path that one world does not show (its list is empty) says nothing."""
    assert native.keys() == proxy.keys(), native.keys() ^ proxy.keys()
    return [
        f"{situation}: {path} is {'/'.join(sorted(kinds))} natively, {'/'.join(sorted(proxy[situation][path]))} here"
        for situation, paths in native.items()
        for path, kinds in paths.items()
        if path in proxy[situation] and _differ(path, kinds, proxy[situation][path])
    ]


def _differ(path: str, native: frozenset[str], proxy: frozenset[str]) -> bool:
    if path.endswith("error_message") and NULL in native and EMPTY not in proxy:
        return False  # a sentence for people where a broker leaves it to the code alone
    return (NULL in native) != (NULL in proxy) or (EMPTY in proxy and GIVEN in native and EMPTY not in native)


def common_versions(*bootstraps: Raw) -> dict[str, range]:
    """API -> versions that all of them offer."""
    names = {key: name for name, key in KEYS.items()}
    offers = [
        {entry.api_key: (entry.min_version, entry.max_version) for entry in raw.send_request("ApiVersions", 2).api_keys}
        for raw in bootstraps
    ]
    both = set.intersection(*(set(offer) for offer in offers)) & names.keys()
    offers.append({key: registry.versions(key) for key in both})  # what can be said here
    return {
        names[key]: range(max(offer[key][0] for offer in offers), min(offer[key][1] for offer in offers) + 1)
        for key in both
    }
