"""A broker of a few lines with share groups in front of it, as tests of share groups have it."""

from __future__ import annotations

from tests.sharegroups.conftest import world

__all__ = ["world"]
