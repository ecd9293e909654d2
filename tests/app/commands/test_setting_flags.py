"""Flags of every command that reads settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_share_proxy.app import cli
from kafka_share_proxy.app.settings import config
from kafka_share_proxy.wire.values import Address
from typer.testing import CliRunner

runner = CliRunner()


@pytest.mark.parametrize("bootstrap", ["--bootstrap", "--bootstrap-server", "--upstream"])
@pytest.mark.parametrize("command", ["serve", "check", "views list", "views grow", "views create __view.r2.a"])
def test_every_command_that_dials_brokers_has_the_flags_for_it(
    command: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TLS and the identity, alike; what was checked with them is what is served and administered with them."""
    loaded: list[config.Config] = []

    def take(settings: config.Config, *_: object, **__: object) -> object:
        loaded.append(settings)
        return []

    for runs in (
        "kafka_share_proxy.app.serving.server.run",
        "kafka_share_proxy.app.commands.check.run",
        "kafka_share_proxy.app.commands.views_command.run",
    ):
        monkeypatch.setattr(runs, take)
    secret, authority = tmp_path / "password", tmp_path / "ca.pem"
    secret.write_text("hunter2\n")
    authority.write_text("")
    flags = [bootstrap, "a:1", "--tls", "--tls-ca", str(authority), "--sasl-mechanism", "SCRAM-SHA-512"]
    flags += ["--sasl-username", "proxy", "--sasl-password-file", str(secret), "--set", "listen=h:1"]
    runner.invoke(cli.app, [*command.split(), *flags])
    (settings,) = loaded
    sasl = settings.upstream.sasl
    assert settings.upstream.bootstrap == (Address("a", 1),)
    assert (settings.upstream.tls.on, settings.upstream.tls.ca_file) == (True, str(authority))
    assert (sasl.mechanism, sasl.username, sasl.secret()) == ("SCRAM-SHA-512", "proxy", "hunter2")
