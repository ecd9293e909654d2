"""Regenerate `messages.pyi` from the definitions: `python -m kafka_share_proxy.wire.definitions.stubs`.

One class covers all versions, so a field may be None if any version allows null, or if its default is null. Records are
decoded as one buffer, but may be encoded from pieces.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kafka_share_proxy.wire.definitions import specs
from kafka_share_proxy.wire.definitions.specs import FieldSpec, MessageSpec, StructSpec

TARGET = Path(__file__).with_name("messages.pyi")

TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "Buffer",
}
"""Types that the codecs accept, except for records."""

_HEAD = '''\
# Written by `python -m kafka_share_proxy.wire.definitions.stubs` from schemas/: change the definitions, not this file.
"""What mypy knows of the message classes: their fields in all versions, with the defaults of the definitions."""

from kafka_share_proxy.wire.codec.frames import Pieces
from kafka_share_proxy.wire.codec.primitives import Buffer, Tags
from kafka_share_proxy.wire.definitions.message_classes import Message as Message
from kafka_share_proxy.wire.definitions.message_classes import RequestMessage as RequestMessage

class _Records:
    def __get__(self, message: object, kind: type | None = None) -> Buffer | None: ...
    def __set__(self, message: object, records: Buffer | Pieces | None) -> None: ...
'''


def main() -> int:
    TARGET.write_text(text(), "utf-8")
    sys.stderr.write(f"{TARGET} written\n")
    return 0


def text() -> str:
    message_specs = map(specs.load, (*specs.names(), *specs.internal_names()))
    return "".join([_HEAD, *map(_message, sorted(message_specs, key=_sort_key))])


def type_of(field: FieldSpec, message: str) -> str:
    if field.type == "records":
        return "_Records"
    one = TYPES[field.type] if field.struct is None else f"{message}.{field.struct.name}"
    whole = f"list[{one}]" if field.is_array else one
    return f"{whole} | None" if field.nullable or field.default is None else whole


def _sort_key(spec: MessageSpec) -> tuple[str, bool]:
    """Sort a request after its response: mypy needs the base of a class before its structures."""
    return spec.name.removesuffix("Request").removesuffix("Response"), spec.type == "request"


def _message(spec: MessageSpec) -> str:
    base = f"RequestMessage[{spec.name.removesuffix('Request')}Response]" if spec.type == "request" else "Message"
    lines = [f"class {spec.name}({base}):", *_fields(spec.root, spec.name, "    ")]
    for struct in spec.structs.values():
        lines += ["", f"    class {struct.name}(Message):", *_fields(struct, spec.name, "        ")]
    return "\n" + "\n".join(lines) + "\n"


def _fields(struct: StructSpec, message: str, indent: str) -> Iterator[str]:
    for field in struct.fields:
        yield f"{indent}{field.attribute}: {type_of(field, message)} = {_default(field)}"
    yield f"{indent}unknown_tags: Tags = ()"


def _default(field: FieldSpec) -> str:
    """Return `...` for defaults created for every object (arrays, structures)."""
    fresh = field.default is not None and (field.is_array or field.struct is not None)
    if fresh or isinstance(field.default, bytes) or field.type == "records":
        return "..."
    return f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)


if __name__ == "__main__":
    sys.exit(main())
