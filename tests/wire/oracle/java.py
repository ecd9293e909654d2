"""Messages in the JSON that Kafka's own classes read, and what those classes make of them.

`python -m tests.wire.oracle.java` writes golden.txt anew (by hand, at an upgrade; needs a JDK >= 17): of every message
in its latest version one line "name TAB version TAB hex TAB json", the hex written by Kafka's classes.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for entry in (str(ROOT), str(ROOT / "proxy")):
    if entry not in sys.path:
        sys.path.insert(0, entry)

from kafka_share_proxy.localkafka.jars import class_path, releases  # noqa: E402 - found through the path set above
from kafka_share_proxy.localkafka.java import find_java  # noqa: E402
from kafka_share_proxy.wire.definitions import specs  # noqa: E402
from kafka_share_proxy.wire.definitions.specs import FieldSpec, MessageSpec, StructSpec  # noqa: E402

from tests.wire.samples import Samples, every_codec, present  # noqa: E402

GOLDEN = HERE / "golden.txt"
CLIENTS, BROKER = "clients-4.4.0", "3.9.1"
"""Releases of localkafka: the classes are those of the clients, the JSON library is any broker's."""
ID_BYTES = 16
WIDTH = 3
"""Elements of an array that Samples draws at most, but for the rare long ones, which are cut to it."""


def modest(_field: FieldSpec, _hint: Any, value: Any) -> Any:
    """Short values keep the golden file small; their lengths are tested elsewhere."""
    return value[:3] if isinstance(value, str | bytes) and len(value) != ID_BYTES else value


def drawn(name: str, version: int) -> Any:
    """The message of the golden file."""
    message = Samples(f"golden-{name}-{version}", modest).message(specs.load(name), version)
    _shorten(message)
    return message


def _shorten(message: Any) -> None:
    for attribute in message.FIELDS:
        value = getattr(message, attribute)
        if isinstance(value, list):
            del value[WIDTH:]
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "FIELDS"):
                _shorten(one)


def to_json(spec: MessageSpec, version: int, message: Any) -> dict[str, Any]:
    """Return JSON for the JsonConverter of the message."""
    return _object(spec.root, version, message)


def _object(struct: StructSpec, version: int, message: Any) -> dict[str, Any]:
    fields = {}
    for field in present(struct, version):
        value = getattr(message, field.attribute)
        name = field.name[0].lower() + field.name[1:]
        fields[name] = [_value(field, version, one) for one in value] if isinstance(value, list) else None
        if not isinstance(value, list):
            fields[name] = _value(field, version, value)
    return fields


def _value(field: FieldSpec, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.struct is not None:
        return _object(field.struct, version, value)
    if field.type == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if field.type in {"bytes", "records"}:
        return base64.b64encode(value).decode()
    return value


def java_class(spec: MessageSpec) -> str:
    """Kafka appends Data to the names of all but the record schemas."""
    return spec.name if spec.type == "data" else f"{spec.name}Data"


def has_compiler() -> bool:
    """True if the Java at hand can run a source file; the one in a wheel cannot."""
    modules = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, timeout=60, check=False)
    return "jdk.compiler" in modules.stdout


def encode(messages: list[tuple[str, int, Any]]) -> Iterator[str]:
    """The hex of each message, by Kafka's own classes."""
    lines = [
        f"{java_class(specs.load(name))}\t{version}\t{json.dumps(to_json(specs.load(name), version, message))}\n"
        for name, version, message in messages
    ]
    done = subprocess.run(
        [find_java(), "-cp", class_path(CLIENTS, BROKER), str(HERE / "Encode.java")],
        input="".join(lines).encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    yield from done.stdout.decode().splitlines()


def main() -> None:
    """Write golden.txt."""
    latest = [(name, version) for name, version in every_codec() if version == specs.load(name).valid.last]
    expected = [(name, version, drawn(name, version)) for name, version in latest]
    with GOLDEN.open("w") as out:
        for (name, version, message), data in zip(expected, encode(expected), strict=True):
            text = json.dumps(to_json(specs.load(name), version, message), separators=(",", ":"))
            out.write(f"{name}\t{version}\t{data}\t{text}\n")


__all__ = ["class_path", "releases"]

if __name__ == "__main__":
    main()
