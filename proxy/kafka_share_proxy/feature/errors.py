"""Errors that a feature raises while it is built."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ProxyError


class ConfigError(ProxyError):
    """Invalid settings. The text names every mistake with its path."""
