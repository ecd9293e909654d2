"""Ends of commands: exit status and text of an error."""

from __future__ import annotations

import pytest
import typer
from kafka_share_proxy.app.commands import exits
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.wire.errors import ProxyError, UpstreamLost


class BadName(ProxyError):
    """An argument of a command is wrong."""


def test_an_error_of_a_command_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    """Brokers' texts and names are in it."""
    with pytest.raises(typer.Exit):
        exits.fail("a\x1b]0;owned\x07\nsecond", 1)
    assert capsys.readouterr().err == "kafka-share-proxy: a?]0;owned?\nsecond\n"


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ConfigError("listen: missing"), 2, "listen: missing"),
        (BadName("no view"), 2, "no view"),
        (UpstreamLost("a:1 closed the connection"), 1, "a:1 closed the connection"),
        (OSError("cannot listen on h:1"), 1, "cannot listen on h:1"),
        (FileNotFoundError(2, "No such file or directory"), 1, "No such file or directory"),
    ],
)
def test_an_error_is_one_line_with_its_status(
    error: Exception, status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def call() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        exits.outcome(call, BadName)
    assert (ended.value.exit_code, capsys.readouterr().err) == (status, f"kafka-share-proxy: {text}\n")


def test_the_result_of_a_call_is_returned() -> None:
    assert exits.outcome(lambda: 3) == 3
