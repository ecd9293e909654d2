"""Storage of Kafka's nodes that is copied instead of formatted."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_share_proxy.localkafka import storage_format

IDS = "#\n#Mon Nov 30 11:12:38 UTC 2026\nnode.id=1\ndirectory.id=18hy7UL-skr1KndPvc2X-g\nversion=1\ncluster.id=first\n"
SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_format, "_files_by_kind", {})


@pytest.fixture
def formatted(tmp_path: Path) -> Path:
    """Files that Kafka's tool has written."""
    data = tmp_path / "formatted"
    (data / SNAPSHOT).parent.mkdir(parents=True)
    (data / SNAPSHOT).write_bytes(b"\0features")
    (data / "meta.properties").write_text(IDS)
    return data


def ids_of(data: Path) -> dict[str, str]:
    lines = (data / "meta.properties").read_text().splitlines()
    return dict(line.split("=") for line in lines if not line.startswith("#"))


def test_a_node_of_the_same_kind_gets_the_same_files_with_its_own_ids(formatted: Path, tmp_path: Path) -> None:
    storage_format.keep("4.4.0", formatted)
    seen = {ids_of(formatted)["directory.id"]}
    for node_id in (2, 3):
        data = tmp_path / f"node-{node_id}"
        assert storage_format.copy("4.4.0", data, "second", node_id)
        assert (data / SNAPSHOT).read_bytes() == b"\0features"
        directory_id = ids_of(data)["directory.id"]
        assert ids_of(data) == {
            "node.id": str(node_id), "directory.id": directory_id, "version": "1", "cluster.id": "second",
        }  # fmt: skip
        assert len(directory_id) == 22
        assert not directory_id.startswith("-")
        seen.add(directory_id)
    assert len(seen) == 3


def test_a_node_of_another_kind_is_formatted(formatted: Path, tmp_path: Path) -> None:
    storage_format.keep("4.4.0", formatted)
    assert not storage_format.copy("4.3.0", tmp_path / "node", "second", 2)
    assert not (tmp_path / "node").exists()


def test_storage_in_another_folder_is_not_kept(tmp_path: Path) -> None:
    storage_format.keep("4.4.0", tmp_path / "missing")
    assert not storage_format.copy("4.4.0", tmp_path / "node", "second", 2)


def test_kinds_are_bounded(formatted: Path, tmp_path: Path) -> None:
    for number in range(storage_format.KINDS_MAX + 1):
        storage_format.keep(number, formatted)
    assert storage_format.copy(storage_format.KINDS_MAX - 1, tmp_path / "node", "second", 2)
    assert not storage_format.copy(storage_format.KINDS_MAX, tmp_path / "other", "second", 2)
