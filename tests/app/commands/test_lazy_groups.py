"""Groups of commands that are built when they are used."""

from __future__ import annotations

from typing import ClassVar

import pytest
import typer
from kafka_share_proxy.app.commands.lazy_groups import LazyGroups
from typer.testing import CliRunner


@pytest.fixture
def app() -> typer.Typer:
    """An app with the command `own` and the groups `first` and `second`."""
    built = typer.Typer(cls=_Groups, add_completion=False)
    built.command("own", help="Of the app.")(lambda: print("own"))
    built.callback()(lambda: None)
    BUILT.clear()
    return built


BUILT: list[str] = []


def _group(name: str) -> typer.Typer:
    BUILT.append(name)
    group = typer.Typer(help=f"Of {name}.", add_completion=False, no_args_is_help=True)
    group.command("one")(lambda: print(f"{name} one"))
    group.command("two")(lambda: print(f"{name} two"))
    return group


class _Groups(LazyGroups):
    LOADERS: ClassVar = {"first": lambda: _group("first"), "second": lambda: _group("second")}


@pytest.mark.parametrize(
    ("arguments", "output", "built"),
    [(["own"], "own\n", []), (["second", "two"], "second two\n", ["second"])],
)
def test_only_the_group_of_the_command_is_built(
    app: typer.Typer, arguments: list[str], output: str, built: list[str]
) -> None:
    done = CliRunner().invoke(app, arguments)
    assert (done.output, BUILT) == (output, built)


def test_the_help_lists_commands_and_then_groups(app: typer.Typer) -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    places = [text.index(part) for part in ("own", "Of the app.", "first", "Of first.", "second", "Of second.")]
    assert places == sorted(places)


def test_an_unknown_name_gets_suggestions_of_groups(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["secnd"])
    assert done.exit_code == 2
    assert "Did you mean 'second'?" in done.output
