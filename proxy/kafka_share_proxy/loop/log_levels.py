"""Levels of log events, as numbers of the standard library's logging."""

from __future__ import annotations

from collections.abc import Mapping

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40

EventLevels = Mapping[str, int]
"""Level of each log event, by its name."""
