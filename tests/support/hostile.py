"""The largest requests of every kind that the proxy inspects or serves, made from the message definitions.

A request is written with one element in an array, and that element is then repeated with a number in it up to the
wanted size: so large requests are made quickly, and all their names differ. Which requests there are is read from the
routes of the product, so a new one joins by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka_share_proxy.forwarding.dispatch import chain, route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.views.view_apis import served as served_views
from kafka_share_proxy.wire.codec import frames, primitives
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec

from tests.support import ports, view_broker
from tests.wire.samples import present

NUMBER = "00000000"
"""Placeholder in the bytes of an element for its number."""
FIELDS = {"resource_type": 32, "config_resource_type": 32, "acks": -1}
"""Values of some fields: group settings, and Produce with a response. All other numbers are 0."""
HUGE_STRING = 32_000
ARRAYS_MAX = 20
"""Maximum number of arrays in one request with an element in addition to the filled one."""
TAG_MIN = 1000
"""Unknown tags begin here."""


class Names(NamedTuple):
    """Names in a request."""

    group: str
    topic: str
    topic_id: bytes
    member: str

    @classmethod
    def numbered(cls, long: bool = False) -> Names:
        """Names that differ from element to element: unknown groups and topic ids, views of unknown topics."""
        tail = NUMBER + "x" * (HUGE_STRING if long else 0)
        return cls(f"g{tail}", f"__view.r2.t{tail}", bytes(8) + NUMBER.encode(), f"m{tail}")


@dataclass(frozen=True)
class Hostile:
    """One large request."""

    shape: str
    frame: bytes


CLIENTS_UP_TO: dict[int, int] = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}
"""Highest version for clients of an API whose later versions are for brokers (KIP-890). After requests of 4 MiB in v5
two network threads of a 3.9.1 broker were busy for good, and it served no client any longer."""


def looked_into() -> dict[int, Route]:
    """API key -> the route of its highest version for clients, of every API that is not simply passed on or refused."""
    return {route.key: route for route in every_route()}


def every_route() -> list[Route]:
    """Return those of all versions for clients, in order."""
    routes = [route for route in _routes() if route.kind not in (Kind.REFUSE, Kind.FORWARD) or route.amend is not None]
    routes = [route for route in routes if route.version <= CLIENTS_UP_TO.get(route.key, route.version)]
    return sorted((route for route in routes if not route.opaque), key=lambda route: (route.key, route.version))


def _routes() -> list[Route]:
    book = AddressBook(1, "localhost", lambda _node_id, _upstream: False)
    versions = EffectiveVersions(Offer((share_group_apis.OFFER,)))
    share = share_group_apis.served(ports.World().services)
    return list(
        route_table.build(
            book, versions, Limits(), chain.in_order((served_views(view_broker.World().views), share))
        ).values()
    )


def requests(key: int, version: int, known: Names, size: int) -> Iterator[Hostile]:
    """Yield requests of about `size` bytes (no more): every array filled, alternately with known and unknown names."""
    spec = registry.request_spec(key)
    for path in _arrays(spec.root, version):
        words = ".".join(field.name for field in path)
        for kind, names in (("unknown", Names.numbered()), ("known", known), ("long", Names.numbered(long=True))):
            frame = _filled(key, version, path, known, names, size)
            if frame is not None:
                yield Hostile(f"{words} {kind}", frame)
    if version in spec.flexible:
        yield Hostile("unknown tags", _tagged(key, version, known, size))


def small(key: int, version: int) -> Iterator[Hostile]:
    """Requests about what does not exist, with one element in each array: they create nothing.

    They hold `NUMBER` where names may differ from request to request, so that no response is one seen before.
    Topics are views in the first, which the proxy serves itself where it serves views, and plain ones in the second.
    """
    for shape, topic in (("views", "__view.r2.absent"), ("plain", "absent")):
        names = Names(f"absent{NUMBER}", topic + NUMBER, b"absent--" + NUMBER.encode(), f"absent{NUMBER}")
        yield Hostile(shape, _message(key, version, (), 0, names, names))


def filled_request(key: int, version: int) -> Any:
    """A request with one element in each array."""
    spec, names = registry.request_spec(key), Names("group", "topic", bytes(16), "host")
    return _built_message(registry.message(spec.name), spec.root, version, (), 0, names, names)


def filled_response(key: int, version: int) -> Any:
    """A response with one element in each array."""
    spec, names = registry.response_spec(key), Names("group", "topic", bytes(16), "host")
    return _built_message(registry.message(spec.name), spec.root, version, (), 0, names, names)


def _arrays(root: StructSpec, version: int, above: tuple[FieldSpec, ...] = ()) -> Iterator[tuple[FieldSpec, ...]]:
    """Yield the path to every array, those within elements of others included."""
    for field in present(root, version):
        if field.is_tagged(version):
            continue
        if field.is_array:
            yield (*above, field)
        if field.struct is not None:
            yield from _arrays(field.struct, version, (*above, field))


def _message(key: int, version: int, path: tuple[FieldSpec, ...], count: int, names: Names, inner: Names) -> bytes:
    """A frame with one element in each array, `count` (0 or 1) in the one at the end of the path."""
    spec = registry.request_spec(key)
    message = _built_message(registry.message(spec.name), spec.root, version, path, count, names, inner)
    return frames.request(key, version, 1, "hostile", message)


def _built_message(
    root: type[Any], spec: StructSpec, version: int, path: tuple[FieldSpec, ...], count: int, names: Names, inner: Names
) -> Any:
    values = {}
    for field in present(spec, version):
        on_path = bool(path) and field is path[0]
        below = path[1:] if on_path else ()
        if on_path and len(path) == 1:
            values[field.attribute] = [_element(root, field, version, (), 0, inner, inner)] * count
        elif field.is_array:
            values[field.attribute] = [_element(root, field, version, below, count, names, inner)]
        else:
            values[field.attribute] = _element(root, field, version, below, count, names, inner)
    message_class = root if spec.name == root.__name__ else getattr(root, spec.name)
    return message_class(**values)


def _element(
    root: type[Any], field: FieldSpec, version: int, path: tuple[FieldSpec, ...], count: int, names: Names, inner: Names
) -> Any:
    if field.struct is not None:
        return _built_message(root, field.struct, version, path, count, names, inner)
    if field.type == "string":
        return _string(field, names)
    if field.type in ("bytes", "records"):
        return b""
    if field.type == "uuid":
        return names.topic_id
    if field.type == "bool":
        return field.attribute == "validate_only"
    return FIELDS.get(field.attribute, 0)


def _string(field: FieldSpec, names: Names) -> str:
    if field.entity == "topicName" or "topic" in field.attribute:
        return names.topic
    if field.entity == "groupId" or "group" in field.attribute or field.attribute == "resource_name":
        return names.group
    return names.member


def _filled(key: int, version: int, path: tuple[FieldSpec, ...], known: Names, names: Names, size: int) -> bytes | None:
    """Return a frame with one array as long as there is room for. None if the array has no place in this version."""
    empty, one = (_message(key, version, path, count, known, names) for count in (0, 1))
    flexible = version in registry.request_spec(key).flexible
    at = next(index for index in range(4, len(one)) if one[index] != empty[index])
    begin, width = (at, 1) if flexible else (at - 3, 4)
    behind = len(empty) - begin - width
    element = one[begin + width : len(one) - behind]
    count = min(
        (size - len(empty) - 8) // max(len(element), 1),
        (primitives.ELEMENTS_MAX - ARRAYS_MAX) // _elements(path[-1], version),
    )
    if count < 1:
        return None
    number = primitives.uvarint(count + 1) if flexible else struct.pack(">i", count)
    return _sized(empty[4:begin] + number + _numbered(element, count) + one[len(one) - behind :])


def _elements(field: FieldSpec, version: int) -> int:
    """Return how many array elements one element of this array adds: itself, and one in each array within."""
    if field.struct is None:
        return 1
    within = [each for each in present(field.struct, version) if each.is_array and not each.is_tagged(version)]
    return 1 + sum(_elements(each, version) for each in within)


def _numbered(element: bytes, count: int) -> bytes:
    pieces = element.split(NUMBER.encode())
    if len(pieces) == 1:
        return element * count
    return b"".join((b"%08d" % number).join(pieces) for number in range(count))


def _tagged(key: int, version: int, known: Names, size: int) -> bytes:
    """Return as many unknown tagged fields as fit."""
    plain = _message(key, version, (), 0, known, known)
    count = min((size - len(plain) - 8) // 4, primitives.TAGS_MAX)
    tags = b"".join(primitives.uvarint(TAG_MIN + number) + b"\0" for number in range(count))
    return _sized(plain[4:-1] + primitives.uvarint(count) + tags)


def _sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame
