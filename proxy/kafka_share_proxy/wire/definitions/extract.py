"""Regenerate `schemas/` from Kafka's message definitions: `python -m kafka_share_proxy.wire.definitions.extract
ARTIFACT [TARGET]`.

ARTIFACT is a kafka-clients jar, or a folder with `common/message/*.json`. Rules: wire/README.md 1 and 2. Run `python -m
kafka_share_proxy.wire.definitions.stubs` afterwards.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka_share_proxy.wire.definitions import specs

_FOLDER = "common/message/"
_PROSE = frozenset({"about", "zeroCopy"})


def main(arguments: list[str]) -> int:
    """Return 2 for invalid arguments."""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write("usage: python -m kafka_share_proxy.wire.definitions.extract ARTIFACT [TARGET]\n")
        return 2
    artifact = Path(arguments[0])
    target = Path(arguments[1]) if len(arguments) == 2 else Path(str(specs.location()))
    written = write(dict(definitions(artifact)), target)
    (target / "PROVENANCE").write_text(provenance(artifact, written), "utf-8")
    sys.stderr.write(f"{written} definitions written\n")
    return 0


def definitions(artifact: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for text in _texts(artifact):
        raw = _facts(json.loads(specs.strip_comments(text)))
        yield raw["name"], raw


def write(raws: Mapping[str, dict[str, Any]], target: Path) -> int:
    """Write all, and keep sub-folders of `target`. Return the number written."""
    for raw in raws.values():
        specs.parse(raw)
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.json"):
        old.unlink()
    for name, raw in raws.items():
        (target / f"{name}.json").write_text(layout(raw), "utf-8")
    return len(raws)


def layout(raw: Mapping[str, Any]) -> str:
    """Format one field per line, so that the diff of an upgrade is a list of changed fields."""
    return _object(raw, 0) + "\n"


def provenance(artifact: Path, count: int) -> str:
    digest = hashlib.sha256(artifact.read_bytes()).hexdigest() if artifact.is_file() else "a folder, not hashed"
    return (
        f"artifact: org.apache.kafka:kafka-clients ({artifact.name})\n"
        f"sha256:   {digest}\n"
        f"folder:   {_FOLDER}*.json ({count} definitions), Apache License 2.0\n"
        f"command:  python -m kafka_share_proxy.wire.definitions.extract {artifact.name}\n"
        "kept:     layout facts only; comments and descriptions are left out\n"
    )


def _texts(artifact: Path) -> Iterator[str]:
    if artifact.is_file():
        with zipfile.ZipFile(artifact) as jar:
            for name in sorted(jar.namelist()):
                if name.startswith(_FOLDER) and name.endswith(".json"):
                    yield jar.read(name).decode("utf-8")
        return
    folder = artifact / _FOLDER
    for path in sorted((folder if folder.is_dir() else artifact).glob("*.json")):
        yield path.read_text("utf-8")


def _facts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _facts(inner) for key, inner in value.items() if key not in _PROSE}
    if isinstance(value, list):
        return [_facts(inner) for inner in value]
    return value


def _object(raw: Mapping[str, Any], depth: int) -> str:
    nested = [key for key, value in raw.items() if isinstance(value, list) and any(isinstance(e, dict) for e in value)]
    plain = ", ".join(f"{json.dumps(key)}: {json.dumps(raw[key])}" for key in raw if key not in nested)
    if not nested:
        return f"{{{plain}}}"
    pad = "  " * (depth + 1)
    parts = [plain] if plain else []
    for key in nested:
        rows = ",\n".join(f"{pad}{_object(entry, depth + 1)}" for entry in raw[key])
        parts.append(f"{json.dumps(key)}: [\n{rows}\n{pad[2:]}]")
    return "{" + ", ".join(parts) + "}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
