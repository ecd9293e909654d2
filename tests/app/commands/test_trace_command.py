"""The command `trace` against an admin listener that gives the responses of a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.app import cli
from kafka_share_proxy.app.commands import trace_command
from kafka_share_proxy.feature.errors import ConfigError
from typer.testing import CliRunner

from tests.app.commands.test_groups_command import Listener

LINE = {
    "worker": 1, "at": 1700000000.25, "connection": 7, "client": "10.0.0.1", "request": "Fetch", "version": 13,
    "correlation_id": 4, "bytes": 99, "body": {"MaxWaitMs": 500},
}  # fmt: skip


@pytest.fixture
def listener() -> Iterator[Listener]:
    running_listener = Listener()
    yield running_listener
    running_listener.close()


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["trace", *arguments], env={"KSP_ADMIN": ""})
    return result.exit_code, result.output


def state(*lines: dict[str, Any], on: bool, position: str = "0:1") -> tuple[int, bytes]:
    body = {
        "client": "app", "on": on, "ended": "" if on else "its time is over", "connections_left_out": 2,
        "lines": [json.dumps(line) for line in lines], "position": position,
    }  # fmt: skip
    return 200, json.dumps(body).encode()


def test_the_command_prints_each_line_until_the_trace_ends(listener: Listener) -> None:
    listener.responses["POST", "/trace/begin/my%20app/90"] = state(on=True)
    listener.responses["GET", "/trace"] = state(LINE, on=True)
    listener.responses["GET", "/trace/after/0:1"] = state(on=False)
    status, text = run("my app", "--for", "90s", "--admin", listener.address)
    assert status == 0
    assert "worker 1 10.0.0.1 #7 > Fetch v13 (4), 99 bytes" in text
    assert '"MaxWaitMs": 500' in text
    assert "the trace has ended: its time is over; 2 more connections" in text


def test_json_has_one_object_a_line(listener: Listener) -> None:
    listener.responses["GET", "/trace"] = state(LINE, on=True)
    listener.responses["GET", "/trace/after/0:1"] = state(on=False)
    status, text = run("--json", "--admin", listener.address)
    assert status == 0
    assert [json.loads(line) for line in text.splitlines()] == [
        LINE,
        {"ended": "its time is over", "connections_left_out": 2},
    ]


def test_a_proxy_without_a_trace_has_status_1(listener: Listener) -> None:
    listener.responses["GET", "/trace"] = (200, b'{"client": ""}')
    status, text = run("--admin", listener.address)
    assert (status, "no client is traced" in text) == (1, True)


def test_wrong_arguments_have_status_2(listener: Listener) -> None:
    assert run("app", "--for", "soon", "--admin", listener.address)[0] == 2
    assert run("--for", "5s", "--admin", listener.address)[0] == 2
    assert run("app")[0] == 2


def test_times_have_units() -> None:
    assert [trace_command.seconds_of(text) for text in ("30", "1.5s", "5m", "1h")] == [30, 1.5, 300, 3600]
    for text in ("", "s", "-1s", "0", "inf", "nan"):
        with pytest.raises(ConfigError, match="--for"):
            trace_command.seconds_of(text)


def test_a_response_says_how_long_it_took() -> None:
    line = {key: value for key, value in LINE.items() if key not in ("request", "worker")} | {
        "response": "Fetch",
        "ms": 1.5,
    }
    assert "#7 < Fetch v13 (4), 99 bytes after 1.5 ms" in trace_command.readable(line)
