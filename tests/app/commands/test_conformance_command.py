"""The commands `conformance`."""
"""The commands `conformance ...`."""

from __future__ import annotations

from kafka_share_proxy.app import cli
from typer.testing import CliRunner


def test_the_commands_are_listed() -> None:
    result = CliRunner().invoke(cli.app, ["conformance", "--help"])
    assert result.exit_code == 0
    assert "run" in result.output
    assert "Test a cluster against the rules of Kafka's protocol" in result.output.replace("\n", " ")
def test_the_help_names_the_commands() -> None:
    output = CliRunner().invoke(cli.app, ["conformance", "--help"]).output
    assert "target" in output
