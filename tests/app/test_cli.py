"""Commands, flags, exit statuses."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_share_proxy.app import cli
from kafka_share_proxy.app.settings import config
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from typer.testing import CliRunner

CHECKOUT = Path(__file__).resolve().parents[2]
REQUEST = frames.request(18, 3, 7, "me", registry.message("ApiVersionsRequest")(client_software_name="x"))

runner = CliRunner()


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the test run may contain KSP_ variables."""
    import os

    for name in [name for name in os.environ if name.startswith("KSP_")]:
        monkeypatch.delenv(name)


def test_python_m_kafka_share_proxy_runs_the_command() -> None:
    """`python -m kafka_share_proxy --version` says version, commit and kernels, and ends with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "kafka_share_proxy", "--version"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"kafka-share-proxy [\d.]+, commit [0-9a-z]+(\+changes)?, kernels (in C|\d+ in C)", done.stdout)


def test_help_names_the_commands() -> None:
    """Without arguments the help is shown."""
    help_text = runner.invoke(cli.app, ["--help"]).output
    assert all(command in help_text for command in ("serve", "check", "decode"))
    flags = runner.invoke(cli.app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    for flag in (
        "--bootstrap",
        "--upstream",
        "--listen",
        "--advertise",
        "--admin",
        "--config",
        "--log-format",
        "--set",
    ):
        assert flag in flags


@pytest.mark.parametrize("command", ["serve", "check"])
def test_wrong_settings_end_with_2_and_name_every_mistake(command: str) -> None:
    """One run reports all of them."""
    done = runner.invoke(cli.app, [command, "--upstream", "nonsense", "--log-format", "xml", "--set", "drain_s=-1"])
    assert done.exit_code == 2
    for path in ("upstream.bootstrap", "log_format", "drain_s", "listen"):
        assert f"  {path}" in done.output


@pytest.mark.parametrize("assignment", ["drain_s", "=5", ""])
def test_set_without_key_or_value_ends_with_2(assignment: str) -> None:
    """With an example."""
    done = runner.invoke(cli.app, ["serve", "--set", assignment])
    assert done.exit_code == 2
    assert "KEY=VALUE" in done.output


def test_unknown_flags_end_with_2() -> None:
    """The exit status of a wrong command line."""
    assert runner.invoke(cli.app, ["serve", "--nonsense"]).exit_code == 2
    assert runner.invoke(cli.app, ["nonsense"]).exit_code == 2


def test_every_flag_reaches_its_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Named flags and --set, over the file."""
    file = tmp_path / "s.yaml"
    file.write_text("log_level: error\ndrain_s: 3\n")
    loaded: list[config.Config] = []

    def run(settings: config.Config, *, read: Callable[[], config.Config]) -> int:
        loaded.append(settings)
        assert read() == settings, "a reload reads the same sources"
        return 0

    monkeypatch.setattr("kafka_share_proxy.app.serving.server.run", run)
    arguments = ["--upstream", "a:1,b:2", "--listen", "0.0.0.0:9092", "--advertise", "p", "--admin", "127.0.0.1:9999"]
    arguments += ["--log-format", "json", "--config", str(file), "--set", "drain_s=5", "--set", "limits.connections=7"]
    assert runner.invoke(cli.app, ["serve", *arguments]).exit_code == 0
    settings = loaded[0]
    assert [str(address) for address in settings.upstream.bootstrap] == ["a:1", "b:2"]
    assert (str(settings.listen), settings.advertise, str(settings.admin)) == ("0.0.0.0:9092", "p", "127.0.0.1:9999")
    assert (settings.log_format, settings.log_level, settings.drain_s) == ("json", "error", 5)
    assert settings.named_limits.connections == 7


def test_check_ends_with_1_when_it_would_not_work() -> None:
    """No process listens on port 1 of this machine."""
    done = runner.invoke(cli.app, ["check", "--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:19092"])
    assert done.exit_code == 1
    assert "would not work" in done.output


@pytest.mark.parametrize("binary", [True, False])
def test_decode_reads_files_and_stdin(binary: bool, tmp_path: Path) -> None:
    """Hex or binary."""
    captured = REQUEST if binary else REQUEST.hex().encode()
    file = tmp_path / "captured"
    file.write_bytes(captured)
    for done in (
        runner.invoke(cli.app, ["decode", str(file)]),
        runner.invoke(cli.app, ["decode", "-"], input=captured),
    ):
        assert done.exit_code == 0
        assert "ApiVersionsRequest v3" in done.output


def test_decode_takes_responses(tmp_path: Path) -> None:
    """The API and version are given, or taken from the requests of the same connection."""
    response, requests = tmp_path / "response", tmp_path / "requests"
    response.write_bytes(frames.response(18, 3, 7, registry.message("ApiVersionsResponse")(error_code=35)))
    requests.write_bytes(REQUEST)
    for how in (["--response-to", "ApiVersions:3"], ["--requests", str(requests)]):
        done = runner.invoke(cli.app, ["decode", str(response), *how])
        assert (done.exit_code, "UNSUPPORTED_VERSION" in done.output) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["/nowhere"], 2),
        (["-", "--response-to", "Nonsense"], 2),
        (["-", "--response-to", "Metadata:99"], 1),
    ],
)
def test_decode_says_what_is_wrong(arguments: list[str], status: int) -> None:
    """A sentence, no stack trace."""
    done = runner.invoke(cli.app, ["decode", *arguments], input=REQUEST)
    assert done.exit_code == status
    assert "kafka-share-proxy: " in done.output
    assert "Traceback" not in done.output


def test_commands_import_only_what_they_need() -> None:
    """`serve` idles small: no HTTP clients, no test tools, no second configuration system."""
    code = (
        "import sys; sys.argv[0] = 'x'\n"
        "from kafka_share_proxy.app import cli\n"
        "from kafka_share_proxy.app.serving import server\n"
        "print(*sorted({'requests', 'urllib3', 'pydantic_settings', 'asyncio', 'prometheus_client', 'scramp',"
        " 'construct', 'kio', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""
