"""Flags of `conformance target`. The served cluster is tested in tests/conformance."""

from __future__ import annotations

import pytest
from kafka_share_proxy.app import cli
from typer.testing import CliRunner


def test_the_list_is_printed() -> None:
    result = CliRunner().invoke(cli.app, ["conformance", "target", "--list"])
    assert result.exit_code == 0
    assert "Produce" in result.output


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--listen", "nowhere"], "--listen nowhere: write HOST:PORT"),
        (["--listen", "h:70000"], "--listen h:70000: write HOST:PORT"),
        (["--control", "1"], "--control 1: write HOST:PORT"),
        (["--topic", "t:x"], "--topic t:x: write NAME or NAME:PARTITIONS"),
        (["--topic", "a b"], "--topic: Topic name is invalid"),
        (["--user", "alice"], "--user: write NAME:PASSWORD"),
        (["--tls-key", "k"], "--tls-key needs --tls-cert"),
        (["--scenario", "/no/such/file"], "cannot read /no/such/file"),
        (["--listen", "192.0.2.1:0"], "annot assign requested address"),
    ],
)
def test_a_mistake_is_named(flags: list[str], text: str) -> None:
    result = CliRunner().invoke(cli.app, ["conformance", "target", *flags])
    assert result.exit_code in (1, 2)
    assert text in result.output
