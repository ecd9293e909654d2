"""Captured frames as a readable tree: header, every field by its Kafka name, record batches, records.

A capture is the byte stream of one connection: requests, responses, or both in the order received. For responses, the
caller provides API key and version, or the capture contains the request with the same correlation id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from construct import ConstructError

from kafka_share_proxy.wire.codec import frames, headers, layouts
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.specs import FieldSpec, StructSpec
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import ZERO_UUID

if TYPE_CHECKING:
    from rich.tree import Tree

SHOWN_BYTES = 64
"""Bytes printed of a longer value."""
SHOWN_RECORDS = 1_000
"""Records printed of one batch."""

_SECRET = frozenset({"AuthBytes", "Hmac", "Salt", "SaltedPassword"})
"""Fields whose content is never printed: passwords and equivalents of passwords."""
_ERRORS = {int(code): code.name for code in ErrorCode}
_HEX = re.compile(rb"[0-9a-fA-F\s]+")
_DUMP_OFFSET = re.compile(rb"(?m)^(?:0x)?[0-9a-fA-F]{4,8}:[ \t]")
_DUMP_TEXT = re.compile(rb"(?m)[ \t]{2}\S[^\n]*$")


@dataclass(slots=True)
class Node:
    """One line of the tree and the lines below it."""

    label: str
    children: list[Node] = field(default_factory=list)
    unread: str = ""

    def add(self, label: str) -> Node:
        child = Node(label)
        self.children.append(child)
        return child

    def lines(self, depth: int = 0) -> Iterator[str]:
        yield "  " * depth + self.label
        for child in self.children:
            yield from child.lines(depth + 1)

    def rich(self, parent: Tree | None = None) -> Tree:
        from rich.text import Text  # only the command needs it
        from rich.tree import Tree

        here = Tree(Text(self.label)) if parent is None else parent.add(Text(self.label))
        for child in self.children:
            child.rich(here)
        return here


def raw_bytes(captured: bytes) -> bytes:
    """Decode a capture if it is plain hex or a dump with offsets and text (`xxd`).

    Raises RemoteProtocolError for hex with an odd number of digits.
    """
    text = _DUMP_TEXT.sub(b"", _DUMP_OFFSET.sub(b"", captured)) if _DUMP_OFFSET.match(captured) else captured
    if not text.strip() or not _HEX.fullmatch(text):
        return captured
    digits = b"".join(text.split())
    if len(digits) % 2:
        raise RemoteProtocolError(f"hex with an odd number of digits ({len(digits)})")
    return bytes.fromhex(digits.decode())


def capture(data: bytes, response_to: tuple[int, int] | None = None, requests: bytes = b"") -> Iterator[Node]:
    """Yield one node for each frame. Raises UnknownVersion.

    `response_to`: (key, version) of the requests of these responses. `requests`: capture of these requests.
    """
    request_apis: dict[int, tuple[int, int]] = {}
    for frame in _cut(requests):
        if isinstance(frame, bytes) and len(frame) >= headers.PEEK_BYTES:
            key, version, correlation_id = headers.peek(frame)
            request_apis[correlation_id] = key, version
    if response_to is not None:
        headers.response_header_version(*response_to)
    for index, frame in enumerate(_cut(data)):
        if not isinstance(frame, bytes):
            yield frame
        elif response_to is not None:
            yield _shown(f"frame {index}", frame, response_to)
        else:
            yield _guessed(f"frame {index}", frame, request_apis)


def _cut(data: bytes) -> Iterator[bytes | Node]:
    """Yield frames without size, and a node for bytes that are not a frame."""
    position = 0
    while position < len(data):
        rest = data[position:]
        size = int.from_bytes(rest[:4], "big", signed=True)
        if len(rest) < 4 or not 0 <= size <= frames.FRAME_BYTES_MAX:
            yield _unread(f"not a frame at byte {position}: {_preview(rest)}")
            return
        if len(rest) < 4 + size:
            yield _unread(f"a frame of {size} bytes at byte {position}, of which {len(rest) - 4} are here")
            return
        yield bytes(layouts.FRAME.parse(rest[: 4 + size]))
        position += 4 + size


def _unread(label: str) -> Node:
    return Node(label, unread=label)


def _guessed(title: str, frame: bytes, request_apis: dict[int, tuple[int, int]]) -> Node:
    responded = request_apis.get(int.from_bytes(frame[:4], "big", signed=True))
    if responded is not None:
        try:
            node = _response(title, frame, *responded)
        except ProxyError:
            pass
        else:
            del request_apis[int.from_bytes(frame[:4], "big", signed=True)]
            return node
    node = _shown(title, frame, None)
    if len(frame) >= headers.PEEK_BYTES:
        key, version, correlation_id = headers.peek(frame)
        request_apis[correlation_id] = key, version
    return node


def _shown(title: str, frame: bytes, response_to: tuple[int, int] | None) -> Node:
    try:
        return _request(title, frame) if response_to is None else _response(title, frame, *response_to)
    except (ProxyError, ConstructError) as error:
        node = _unread(f"{title}: {len(frame)} bytes that cannot be read: {error}")
        node.add(_preview(frame))
        return node


def _request(title: str, frame: bytes) -> Node:
    key, version, _ = headers.peek(frame)
    codec = registry.request(key, version)
    header_version = headers.request_header_version(key, version)
    _, offset = headers.decode_request_header(frame)
    message = codec.decode(frame, offset)
    node = Node(f"{title}: {codec} ({len(frame)} bytes)")
    _header(node, layouts.REQUEST_HEADERS[header_version].parse(frame), f"RequestHeader v{header_version}")
    _struct(node, codec.spec.root, version, message)
    return node


def _response(title: str, frame: bytes, key: int, version: int) -> Node:
    codec = registry.response(key, version)
    header_version = headers.response_header_version(key, version)
    message = codec.decode(frame, headers.response_body_offset(key, version, frame))
    node = Node(f"{title}: {codec} ({len(frame)} bytes)")
    _header(node, layouts.RESPONSE_HEADERS[header_version].parse(frame), f"ResponseHeader v{header_version}")
    _struct(node, codec.spec.root, version, message)
    return node


def _header(node: Node, parsed: Any, title: str) -> None:
    header = node.add(title)
    for name, value in layouts.plain(parsed).items():
        if name == "tags":
            _add_unknown_tags(header, [(tag["tag"], tag["data"]) for tag in value])
        elif name == "client_id":
            text = value["data"]
            header.add(f"client_id: {'null' if text is None else repr(text.decode('utf-8', 'replace'))}")
        else:
            header.add(f"{name}: {value}")


def _struct(node: Node, struct: StructSpec, version: int, message: Any) -> None:
    for spec in struct.fields:
        if version in spec.versions:
            _field(node, spec, version, getattr(message, spec.attribute))
    _add_unknown_tags(node, message.unknown_tags)


def _add_unknown_tags(node: Node, tags: Sequence[tuple[int, bytes]]) -> None:
    for tag, data in tags:
        node.add(f"unknown tag {tag}: {_preview(data)}")


def _field(node: Node, spec: FieldSpec, version: int, value: Any) -> None:
    if value is None:
        node.add(f"{spec.name}: null")
    elif spec.is_array:
        _array(node, spec, version, value)
    elif spec.struct is not None:
        _struct(node.add(spec.name), spec.struct, version, value)
    elif spec.type == "records":
        _records(node.add(f"{spec.name}: {len(value)} bytes"), bytes(value))
    else:
        node.add(f"{spec.name}: {_scalar(spec, value)}")


def _array(node: Node, spec: FieldSpec, version: int, values: Sequence[Any]) -> None:
    if spec.struct is None:
        node.add(f"{spec.name}: [{', '.join(_scalar(spec, value) for value in values)}]")
        return
    below = node.add(f"{spec.name}: {len(values)}")
    for index, value in enumerate(values):
        _struct(below.add(f"[{index}] {spec.struct.name}"), spec.struct, version, value)


def _scalar(spec: FieldSpec, value: Any) -> str:
    if spec.name in _SECRET:
        return f"<{len(value)} bytes, not shown>"
    if spec.type == "uuid":
        return "none" if value == ZERO_UUID else topic_id_text(value)
    if spec.type == "bytes":
        return _preview(value)
    if spec.type == "string":
        return repr(value)
    if spec.type == "int16" and spec.name.endswith("ErrorCode") and value in _ERRORS:
        return f"{value} ({_ERRORS[value]})"
    return str(value)


def _records(node: Node, data: bytes) -> None:
    """Add batches. The first unreadable one ends the list with a reason."""
    position = 0
    try:
        for header in records.iter_batches(data):
            _batch(node, data[header.position : header.end], header)
            position = header.end
    except (ProxyError, ConstructError) as error:
        node.add(f"unreadable from byte {position}: {error}")
        return
    if position < len(data):
        node.add(f"a batch that is cut off: {len(data) - position} bytes")


def _batch(node: Node, data: bytes, header: records.BatchHeader) -> None:
    if header.magic != 2:
        _legacy(node, data)
        return
    parsed = layouts.plain(layouts.RECORD_BATCH.parse(data))
    attributes = parsed["attributes"]
    kind = ("control " if header.is_control else "") + ("transactional " if header.is_transactional else "")
    below = node.add(f"{kind}batch {header.base_offset}-{header.last_offset} ({header.size} bytes)")
    below.add("crc: " + ("right" if records.has_valid_checksum(data) else "WRONG"))
    below.add(f"compression: {attributes['compression']}, timestamps: {attributes['timestamp_type']}")
    for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "base_timestamp", "max_timestamp"):
        below.add(f"{name}: {parsed[name]}")
    listed = below.add(f"records: {header.records_count}")
    try:
        decoded = records.decode_records(data)
    except (RemoteProtocolError, compression.CodecMissing) as error:
        listed.add(str(error))
        return
    for record in decoded[:SHOWN_RECORDS]:
        _record(listed, record, header)
    if len(decoded) > SHOWN_RECORDS:
        listed.add(f"and {len(decoded) - SHOWN_RECORDS} more")


def _record(node: Node, record: records.Record, header: records.BatchHeader) -> None:
    if header.is_control and record.key is not None:
        control = layouts.CONTROL_RECORD_KEY.parse(record.key)
        node.add(f"{record.offset}: {control.type} {_marker(str(control.type), record.value)}".rstrip())
        return
    key, value = _optional(record.key), _optional(record.value)
    below = node.add(f"{record.offset}: key {key}, value {value}, timestamp {record.timestamp}")
    for name, content in record.headers:
        below.add(f"header {name!r}: {_optional(content)}")


def _marker(kind: str, value: bytes | None) -> str:
    if kind not in {"abort", "commit"} or value is None:
        return _optional(value)
    return f"by coordinator epoch {layouts.END_TXN_MARKER.parse(value).coordinator_epoch}"


def _legacy(node: Node, data: bytes) -> None:
    parsed = layouts.plain(layouts.LEGACY_MESSAGE.parse(data))
    below = node.add(f"message of magic {parsed['magic']} at offset {parsed['offset']} ({len(data)} bytes)")
    below.add(f"compression: {parsed['attributes']['compression']}, timestamp: {parsed['timestamp']}")
    below.add(f"key {_optional(parsed['key']['data'])}, value {_optional(parsed['value']['data'])}")


def _optional(value: bytes | None) -> str:
    return "null" if value is None else _preview(value)


def _preview(value: bytes | memoryview) -> str:
    shown = bytes(value[:SHOWN_BYTES])
    more = f" ... ({len(value)} bytes)" if len(value) > SHOWN_BYTES else ""
    try:
        text = shown.decode() if not more else shown.decode("ascii")
    except UnicodeDecodeError:
        return f"0x{shown.hex()}{more}"
    return repr(text) + more if text.isprintable() else f"0x{shown.hex()}{more}"
