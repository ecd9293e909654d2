"""The wheel must carry every room, and the definitions with them."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_room_is_packaged() -> None:
    """A room that is missing in pyproject.toml works in a checkout and not when installed."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    source_root = ROOT / setuptools["package-dir"][""]
    rooms = {str(path.parent.relative_to(source_root)).replace("/", ".") for path in source_root.rglob("__init__.py")}
    elsewhere = {"kafka_share_proxy.schemas", "kafka_share_proxy.schemas.internal"}
    assert set(setuptools["packages"]) == rooms | elsewhere
    assert set(setuptools["package-dir"]) == {"", *elsewhere}
    for package, folder in setuptools["package-dir"].items():
        assert (ROOT / folder).is_dir(), package


def test_the_definitions_are_package_data() -> None:
    """setuptools omits JSON by default."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "*.json" in data["kafka_share_proxy.schemas"]
    assert "*.json" in data["kafka_share_proxy.schemas.internal"]
