"""Start of the command."""

from __future__ import annotations

import subprocess
import sys


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=False)


def test_a_mistake_on_the_command_line_gets_advice() -> None:
    done = run("-m", "kafka_share_proxy", "serv")
    assert done.returncode == 2
    assert "serve" in done.stderr


def test_what_only_mistakes_need_is_not_loaded() -> None:
    program = "import sys; from kafka_share_proxy.app import command_line; command_line._load_typer(); "
    done = run("-c", program + "print('difflib' in sys.modules, 'typer' in sys.modules)")
    assert done.stdout.split() == ["False", "True"]
