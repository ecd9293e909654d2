"""The commands `conformance ...`."""

from __future__ import annotations

from kafka_share_proxy.app import cli
from typer.testing import CliRunner


def test_both_commands_are_listed_with_what_they_do() -> None:
    result = CliRunner().invoke(cli.app, ["conformance", "--help"])
    assert result.exit_code == 0
    output = " ".join(result.output.split())
    assert "Test a cluster against the rules of Kafka's protocol" in output
    assert "target" in output
