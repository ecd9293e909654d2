"""Generate `layouts.h`, the byte layouts that the walk in C needs, from the message definitions.

python -m kafka_share_proxy.forwarding.walk.c_layouts > proxy/kafka_share_proxy/forwarding/walk/layouts.h

A test checks that the file matches. Version-dependent layouts are passed to C at set-up instead (`request_inspection`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TypeVar

from kafka_share_proxy.forwarding.dispatch.offered_versions import CAPS
from kafka_share_proxy.forwarding.dispatch.request_inspection import REMEMBERED_BYTES_MAX, MatchKind
from kafka_share_proxy.wire.codec import prefixes
from kafka_share_proxy.wire.codec.frame_sizes import REQUEST_HEAD, REQUEST_MIN, RESPONSE_HEAD, RESPONSE_MIN, SIZE
from kafka_share_proxy.wire.codec.headers import CLIENT_ID_AT
from kafka_share_proxy.wire.codec.source import Source
from kafka_share_proxy.wire.definitions import endpoints, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.specs import FIXED_SIZES
from kafka_share_proxy.wire.errors import LocalProtocolError
from kafka_share_proxy.wire.values import ZERO_UUID

T = TypeVar("T")

HEAD = """/* Made by `python -m kafka_share_proxy.forwarding.walk.c_layouts` from schemas/. Do not edit. */

#ifndef KSP_LAYOUTS_H
#define KSP_LAYOUTS_H
"""

FETCH_IDS_SINCE = 13
"""First version of Fetch that names topics by id (KIP-516)."""


def written() -> str:
    """Return the text of layouts.h."""
    lines = [f"#define {name} {value}{f' /* {why} */' if why else ''}" for name, value, why in constants()]
    return "\n".join((HEAD, *lines, "", "#endif\n"))


def constants() -> Iterator[tuple[str, object, str]]:
    """Yield name, value and comment of each constant.

    Raises LocalProtocolError if versions that C reads alike differ.
    """
    yield "REQUEST_HEAD", REQUEST_HEAD.size, "size, API key, version, correlation id"
    yield "REQUEST_MIN", REQUEST_MIN, ""
    yield "CLIENT_ID", SIZE.size + CLIENT_ID_AT, "start of its bytes, after its length"
    yield "RESPONSE_HEAD", RESPONSE_HEAD.size, "size, correlation id"
    yield "RESPONSE_MIN", RESPONSE_MIN, ""
    yield "UUID", len(ZERO_UUID), ""
    for kind in MatchKind:
        yield f"MATCH_{kind.name}", int(kind), ""
    yield "REMEMBERED_MAX", REMEMBERED_BYTES_MAX, "bytes of a request after its correlation id"
    yield "FETCH_PARTITION", _fetch_partition(), "of one partition of a Fetch by ids, its empty tag section included"
    yield from _produced()


def _fetch_partition() -> int:
    spec = registry.request_spec(ApiKey.FETCH)
    sizes = {
        _bare(Source(spec, version), "FetchPartition") for version in range(FETCH_IDS_SINCE, CAPS[ApiKey.FETCH] + 1)
    }
    size, nothing = _only(sizes)
    return size + len(nothing)


def _produced() -> Iterator[tuple[str, object, str]]:
    spec = registry.response_spec(ApiKey.PRODUCE)
    lowest, highest = registry.versions(ApiKey.PRODUCE)
    carrying = [v for v in range(lowest, highest + 1) if endpoints.locator(ApiKey.PRODUCE, v) is not None]
    sources = [Source(spec, version) for version in range(carrying[0], highest + 1)]
    size, nothing = _only({_bare(source, "PartitionProduceResponse") for source in sources})
    (by_id, *_) = (each.version for each in sources if _has(each, "TopicProduceResponse", "TopicId"))
    end = _only({_bare(source, spec.name)[0] for source in sources})
    yield "AFTER_ACKS", _after_acks(), "from the acks of a Produce to its topics: the time-out"
    yield "PRODUCE_MIN", carrying[0], "first version whose response may have addresses, in a tag"
    yield "PRODUCE_MAX", highest, "last version whose layout is known"
    yield "PRODUCED_IDS_SINCE", by_id, "first version that names topics by id"
    yield "PRODUCED_PARTITION", size + len(nothing), "with no record errors, no message and no tags"
    yield "PRODUCED_ERRORS", size, "start of the record errors"
    yield "PRODUCED_NOTHING", '"' + "".join(f"\\{byte:o}" for byte in nothing) + '"', "their bytes if there are none"
    yield "PRODUCED_NOTHING_BYTES", len(nothing), ""
    yield "PRODUCED_END", end + 1, "after the topics: throttle time, no tags"


def _after_acks() -> int:
    lowest, highest = registry.versions(ApiKey.PRODUCE)
    offsets = [
        [len(prefixes.after_client_id(ApiKey.PRODUCE, version, field)) for field in ("Acks", "TopicData")]
        for version in range(lowest, highest + 1)
    ]
    return _only({topics - acks - FIXED_SIZES["int16"] for acks, topics in offsets})


def _bare(source: Source, name: str) -> tuple[int, bytes]:
    """Return the fixed-size bytes of a structure without tags, and of its null strings and empty lists after them."""
    root = source.spec.root
    struct = root if name == root.name else source.spec.structs[name]
    fields = [field for field in source.plain_fields(struct) if not (struct is root and field.is_array)]
    fixed = [FIXED_SIZES[field.type] for field in fields if field.type in FIXED_SIZES and not field.is_array]
    if not source.is_flexible() or any(field.type not in FIXED_SIZES for field in fields[: len(fixed)]):
        raise LocalProtocolError(f"{name} v{source.version} has no fixed sizes before its last field")
    return sum(fixed), bytes(0 if field.is_nullable(source.version) else 1 for field in fields[len(fixed) :]) + b"\0"


def _has(source: Source, struct: str, field: str) -> bool:
    return any(each.name == field for each in source.plain_fields(source.spec.structs[struct]))


def _only(values: set[T]) -> T:
    """Raises LocalProtocolError if the values of several versions differ."""
    if len(values) != 1:
        raise LocalProtocolError(f"C reads versions alike that differ: {values}")
    return values.pop()


if __name__ == "__main__":
    sys.stdout.write(written())
