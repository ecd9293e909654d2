"""The command `reload` against an admin listener that gives the responses of a test."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kafka_share_proxy.app import cli
from typer.testing import CliRunner

from tests.app.commands.test_groups_command import Listener


@pytest.fixture
def listener() -> Iterator[Listener]:
    running_listener = Listener()
    yield running_listener
    running_listener.close()


def run(*arguments: str, command: str = "reload") -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [command, *arguments], env={"KSP_ADMIN": ""})
    return result.exit_code, result.output


def test_the_command_says_what_changed_and_what_needs_a_restart(listener: Listener) -> None:
    body = {"changed": ["drain_s", "log_level"], "needs_restart": ["first_port"]}
    listener.responses["POST", "/reload"] = (200, json.dumps(body).encode())
    status, text = run("--admin", listener.address)
    assert status == 0
    assert "changed: drain_s, log_level" in text
    assert "needs a restart: first_port" in text


def test_a_refused_reload_has_status_1_and_the_mistakes(listener: Listener) -> None:
    listener.responses["POST", "/reload"] = (422, b'{"reason": "1 setting cannot work:\\n  drain_s: too low"}')
    status, text = run("--admin", listener.address)
    assert (status, "cannot work:\n  drain_s: too low" in text) == (1, True)
    assert run()[0] == 2
    assert run("--admin", "nonsense")[0] == 2


def test_an_upgrade_says_which_workers_serve(listener: Listener) -> None:
    listener.responses["POST", "/upgrade"] = (200, b'{"changed": ["drain_s"], "needs_restart": []}')
    status, text = run("--admin", listener.address, command="upgrade")
    assert (status, "new workers" in text, "changed: drain_s" in text) == (0, True, True)


def test_a_refused_upgrade_has_status_1_and_the_reason(listener: Listener) -> None:
    listener.responses["POST", "/upgrade"] = (422, b'{"reason": "a new worker ended with status 2"}')
    status, text = run("--admin", listener.address, command="upgrade")
    assert (status, "ended with status 2" in text) == (1, True)
