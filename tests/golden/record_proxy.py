"""Record what this version stores and sends to other proxies: `python -m tests.golden.record_proxy > FILE`, by hand.

One JSON object: every internal message in every version, as field values and bytes, the kinds of messages between
proxies, and a whole link with fixed nonces. It is recorded once for a release and never again: later versions must read
it (tests/golden/test_earlier_versions.py). To record an earlier commit, run this file with PYTHONPATH set to its tree.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_share_proxy.commits import state_records as commits
from kafka_share_proxy.commits.state_records import GroupKey, RangeKey, RangeValue
from kafka_share_proxy.fleet.peer_protocol import MESSAGES, NONCE_BYTES, PeerProtocol
from kafka_share_proxy.sharegroups.apis.group_configs import stored_value
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot
from kafka_share_proxy.sharegroups.state import state_records as sharegroups
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.views import state_records as views
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.wire.definitions import registry, specs

SECRET = b"sixteen bytes ok"
INTEGERS = {"int8": 7, "int16": 300, "uint16": 40_000, "int32": 70_000, "uint32": 3_000_000_000, "int64": 1 << 40}
ELEMENTS = 2
"""Number of elements of each array."""


def value_of(field: specs.FieldSpec, version: int, number: int) -> Any:
    """A value of one field or element that is not its default, as JSON has it: bytes in hexadecimal digits."""
    if field.type == "struct":
        assert field.struct is not None
        return values_of(field.struct.fields, version, number)
    if field.type == "bool":
        return True
    if field.type == "string":
        return f"{field.attribute}-{number}"
    if field.type == "uuid":
        return (bytes([number + 1]) * 16).hex()
    if field.type in INTEGERS:
        return INTEGERS[field.type] + number
    if field.type == "float64":
        return 0.5
    return f"{field.attribute}-{number}".encode().hex()


def values_of(fields: tuple[specs.FieldSpec, ...], version: int, number: int = 0) -> dict[str, Any]:
    """Values of all fields that there are in this version."""
    values: dict[str, Any] = {}
    for field in fields:
        if version in field.versions:
            each = [value_of(field, version, number + index) for index in range(ELEMENTS if field.is_array else 1)]
            values[field.attribute] = each if field.is_array else each[0]
    return values


def built(name: str, fields: tuple[specs.FieldSpec, ...], values: Mapping[str, Any], kind: Any = None) -> Any:
    """The message with these values."""
    message = kind or registry.message(name)
    decoded = {}
    for field in fields:
        if field.attribute not in values:
            continue
        value = values[field.attribute]
        each = [_decoded(message, field, one) for one in (value if field.is_array else [value])]
        decoded[field.attribute] = each if field.is_array else each[0]
    return message(**decoded)


def _decoded(message: Any, field: specs.FieldSpec, value: Any) -> Any:
    if field.type == "struct":
        assert field.struct is not None
        owner = getattr(message, field.struct.name)
        return built(field.struct.name, field.struct.fields, value, owner)
    return bytes.fromhex(value) if field.type in ("bytes", "records", "uuid") else value


def recorded() -> Iterator[dict[str, Any]]:
    """Every internal message in every version."""
    for name in sorted(specs.internal_names()):
        if specs.document(name).get("type") != "data":
            continue
        spec = specs.load(name)
        for version in range(spec.valid.first, spec.valid.last + 1):
            values = values_of(spec.root.fields, version)
            data = registry.codec(name, version).encode(built(name, spec.root.fields, values))
            yield {"name": name, "version": version, "values": values, "bytes": bytes(data).hex()}


def link() -> dict[str, Any]:
    """Return what both ends of a link send: the handshake, then one message of each later kind from the dialler."""
    dialler = PeerProtocol("old:1", SECRET, b"o" * NONCE_BYTES, dials=True)
    dialled = PeerProtocol("new:1", SECRET, b"n" * NONCE_BYTES, dials=False)
    reported = {"dialled": [], "dialler": []}  # type: dict[str, list[str]]
    for _ in range(3):
        for name, speaks, hears in (("dialled", dialled, dialler), ("dialler", dialler, dialled)):
            data = speaks.outgoing()
            if data:
                reported[name].append(data.hex())
                list(hears.receive_data(data))
    for name in MESSAGES[3:]:
        spec = specs.load(name)
        message = built(name, spec.root.fields, values_of(spec.root.fields, 0))
        reported["dialler"].append(dialler.send(message).hex())
        reported["dialled"].append(dialled.send(message).hex())
    return {"secret": SECRET.hex(), **reported}


def state_records() -> Iterator[dict[str, str]]:
    """One record of each type in each internal topic, as features write them."""
    share = sharegroups.SHARE_STATE
    for key, value in (
        (StateKey("group", "g"), sharegroups.group_value(5)),
        (StateKey("settings", "g"), stored_value({"share.auto.offset.reset": "earliest"})),
        (StateKey("partition", "g", b"t" * 16, 3), ShareSnapshot(40, 2, 1, ((40, 41, 0, 1), (42, 42, 2, 1))).encode()),
    ):
        yield {"topic": share.topic, "key": share.encode_key(key).hex(), "value": value.hex()}
    ranges = commits.INDIVIDUAL_COMMITS
    value = commits.range_value(RangeValue(b"t" * 16, 7, 41, 1_700_000_000_000, "member", None))
    yield {"topic": ranges.topic, "key": ranges.encode_key(RangeKey("g", "t", 3, 43, 45)).hex(), "value": value.hex()}
    value = commits.group_value(1_700_000_000_000)
    yield {"topic": ranges.topic, "key": ranges.encode_key(GroupKey("g")).hex(), "value": value.hex()}
    for state in (share, ranges):
        takeover = state.takeover("proxy:1", 1_700_000_000_000, 1000, 3)
        yield {"topic": state.topic, "key": (takeover.key or b"").hex(), "value": (takeover.value or b"").hex()}
    binding = views.binding_value(Binding(b"v" * 16, b"b" * 16))
    yield {"topic": views.TOPIC, "key": views.binding_key("__view.r8.t").hex(), "value": binding.hex()}
    plan = views.plan_value(Plan("hot", (0, 1 << 31), "t"))
    yield {"topic": views.TOPIC, "key": views.plan_key("hot").hex(), "value": plan.hex()}


if __name__ == "__main__":
    golden = {"kinds": list(MESSAGES), "messages": list(recorded()), "link": link(), "records": list(state_records())}
    json.dump(golden, sys.stdout, indent=1)
    print()
