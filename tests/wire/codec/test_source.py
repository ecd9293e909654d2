"""Text being generated."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.codec.source import Source
from kafka_share_proxy.wire.definitions import specs


def source(name: str, version: int) -> Source:
    """For one message."""
    return Source(specs.load(name), version)


def test_blocks_are_indented_and_never_empty() -> None:
    """Lines in a block are indented below its head."""
    text = source("HeartbeatRequest", 0)
    with text.block("def f(x):"):
        with text.block("if x:"):
            pass
        text.line("return x")
    assert text.text() == "def f(x):\n    if x:\n        pass\n    return x\n"
    assert text.function("f")(3) == 3


def test_names_are_used_once() -> None:
    """Two values never share a local name."""
    text = source("HeartbeatRequest", 0)
    assert len({text.fresh("n") for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("name", "version", "struct", "size"),
    [
        ("MetadataResponse", 0, "MetadataResponseBroker", 4 + 2 + 4),
        ("MetadataResponse", 12, "MetadataResponseBroker", 4 + 1 + 4 + 1 + 1),
        ("MetadataResponse", 12, "MetadataResponsePartition", 2 + 4 + 4 + 4 + 1 + 1 + 1 + 1),
        ("ShareFetchRequest", 2, "AcknowledgementBatch", 8 + 8 + 1 + 1),
    ],
)
def test_the_minimum_size_of_elements_is_that_of_their_fields(name: str, version: int, struct: str, size: int) -> None:
    """How many elements can be in the bytes that are left: computed from the fields of the version."""
    text = source(name, version)
    assert text.min_size(text.spec.structs[struct]) == size


def test_fields_are_plain_tagged_or_absent_by_version() -> None:
    """FetchRequest v12: ClusterId is tagged, ReplicaState is not there yet, ReplicaId is no longer absent."""
    text = source("FetchRequest", 12)
    root = text.spec.root
    assert [field.name for field in text.tagged_fields(root)] == ["ClusterId"]
    assert {field.name for field in text.absent_fields(root)} == {"ReplicaState"}
    assert "ReplicaId" in {field.name for field in text.plain_fields(root)}
