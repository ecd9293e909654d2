"""Versions of installed distributions."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
from kafka_share_proxy.app import installed


@pytest.mark.parametrize("name", ["kafka-share-proxy", "crc32c", "pydantic-core", "trio"])
def test_the_version_is_that_of_importlib_metadata(name: str) -> None:
    assert installed.version(name) == metadata.version(name)


def test_a_distribution_that_is_not_installed_has_no_version() -> None:
    assert installed.version("kafka") == ""


def test_the_first_folder_of_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that setuptools has built has an egg-info."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, file in zip(folders, ("my_thing.egg-info/PKG-INFO", "my_thing-2.dist-info/METADATA"), strict=True):
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_text(f"Name: my-thing\nVersion: {folder.name}\n\nVersion: of the text\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), *map(str, folders)])
    assert installed.version("my-thing") == "a"
