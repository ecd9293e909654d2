"""The settings themselves: what follows from what is written."""

from pathlib import Path

import pytest
from kafka_share_proxy.app.settings import config_loading

REQUIRED = {"upstream.bootstrap": "kafka-1:9092,kafka-2:9093", "listen": "127.0.0.1:19092"}


def test_password_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    """An editor's line end is no part of the password."""
    file = tmp_path / "password"
    file.write_text("s3cret \n")
    sasl = {"upstream.sasl.mechanism": "SCRAM-SHA-512", "upstream.sasl.username": "u"}
    settings = config_loading.load({**REQUIRED, **sasl, "upstream.sasl.password_file": str(file)}, {})
    assert settings.upstream.sasl.secret() == "s3cret "


def test_settings_cannot_be_changed_later() -> None:
    """The configuration of a running proxy is frozen."""
    settings = config_loading.load(REQUIRED, {})
    with pytest.raises(ValueError, match="frozen"):
        settings.log_level = "debug"  # type: ignore[misc]


def test_fewer_connections_are_the_same_settings_otherwise() -> None:
    """Used by `serve` if the limit of open files leaves less capacity."""
    settings = config_loading.load(REQUIRED | {"limits.connections_per_address": "7", "limits.connections": "5000"}, {})
    assert settings.named_limits.connections_per_address == 7
    fewer = settings.with_connections(100)
    assert (fewer.named_limits.connections, settings.named_limits.connections) == (100, 5000)
    assert fewer.named_limits.connections_per_address == 7
    assert config_loading.load(REQUIRED, {}).named_limits.connections_per_address is None
