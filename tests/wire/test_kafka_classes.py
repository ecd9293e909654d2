"""The codec against Kafka's own classes of the release the definitions come from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from kafka_share_proxy.wire.definitions import extract, registry, specs

from tests.wire.oracle import java
from tests.wire.samples import Samples, every_codec

LINES = [line.split("\t") for line in java.GOLDEN.read_text().splitlines()]


@pytest.mark.parametrize(("name", "version", "data", "text"), LINES, ids=[f"{one[0]}-{one[1]}" for one in LINES])
def test_golden_bytes_of_kafka(name: str, version: str, data: str, text: str) -> None:
    """Bytes written by Kafka's classes are read as the original values, and written as the same bytes."""
    codec = registry.codec(name, int(version))
    message = codec.decode(bytes.fromhex(data))
    assert java.to_json(codec.spec, int(version), message) == json.loads(text)
    assert codec.encode(message).hex() == data


def test_every_message_has_a_golden_line() -> None:
    """In its latest version; an upgrade of the definitions needs a new file."""
    latest = {(name, version) for name, version in every_codec() if version == specs.load(name).valid.last}
    assert {(line[0], int(line[1])) for line in LINES} == latest


def test_the_definitions_come_from_the_pinned_jar() -> None:
    """The jar that the tests and the demo fetch is the one schemas/PROVENANCE names."""
    (digest,) = [d for name, d in java.releases()[java.CLIENTS].items() if ":kafka-clients:" in name]
    assert digest in (Path(str(specs.location())) / "PROVENANCE").read_text()


@pytest.mark.broker
def test_all_versions_as_kafka_writes_them() -> None:
    """Every message in every version, with generated values of any length: byte for byte."""
    if not java.has_compiler():
        pytest.skip("needs a JDK: the Java at hand has no compiler")
    messages = [
        (name, version, Samples(f"kafka-{name}-{version}").message(specs.load(name), version))
        for name, version in every_codec()
    ]
    for (name, version, message), data in zip(messages, java.encode(messages), strict=True):
        assert registry.codec(name, version).encode(message).hex() == data, (name, version)


@pytest.mark.broker
def test_extraction_from_the_pinned_jar(tmp_path: Path) -> None:
    """`python -m kafka_share_proxy.wire.definitions.extract JAR` writes exactly the files in schemas/."""
    jar = next(path for path in java.class_path(java.CLIENTS).split(os.pathsep) if "kafka-clients" in path)
    assert extract.main([jar, str(tmp_path)]) == 0
    here = Path(str(specs.location()))
    ours = {path.name: path.read_text() for path in here.iterdir() if path.is_file()}
    assert ours == {path.name: path.read_text() for path in tmp_path.iterdir()}
