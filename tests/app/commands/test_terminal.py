"""Names from the cluster do not control the terminal, whichever command prints them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from kafka_share_proxy.app import cli
from kafka_share_proxy.app.commands import check, commits_command, decode_command, terminal
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.sharegroups.checks import ShareFindings
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import Address, TopicPartition
from rich.console import Console

EVIL = "a\x1b]0;owned\x07\x9b2J\u202eb[red]"
SHOWN = "a?]0;owned??2J?b[red]"


def screen(**options: Any) -> Console:
    return Console(file=io.StringIO(), width=300, force_terminal=True, color_system=None, **options)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_characters_that_a_terminal_obeys_are_replaced() -> None:
    assert terminal.printable(EVIL) == SHOWN
    assert terminal.printable("one\ntwo\r") == "one?two?"
    assert terminal.printable_lines(f"one\n{EVIL}") == f"one\n{SHOWN}"
    assert terminal.printable("Größe 注文 ☃") == "Größe 注文 ☃"


def test_a_cell_is_printable_and_no_markup() -> None:
    assert terminal.cell(EVIL).plain == SHOWN
    assert terminal.cell(7).plain == "7"


def test_json_is_ascii_and_means_the_same() -> None:
    """JSON itself escapes control characters up to 31 only."""
    console = screen()
    terminal.print_json(console, {"group": EVIL})
    assert text_of(console).isascii()
    assert json.loads(text_of(console)) == {"group": EVIL}


def test_check_prints_no_control_characters() -> None:
    """Ids of share groups and racks are what clients and administrators chose."""
    config = Config(listen="h:19092", upstream={"bootstrap": ["a:1"]}, share_groups={"serve": "local"})
    findings = check.Findings(
        servers={Address("a", 1): ""},
        brokers={1: Address(EVIL, 1)},
        of_features={"share groups": ShareFindings(groups=(EVIL,))},
        silent={1: EVIL},
    )
    console = screen()
    check.show(config, findings, check.judge(config, findings), console)
    assert text_of(console).count("a?]0;owned??2J?b") >= 2
    assert not [c for c in text_of(console) if not c.isprintable() and c != "\n"]


def test_lines_about_views_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    cli._print([EVIL])
    assert capsys.readouterr().out == f"{SHOWN}\n"


def test_commits_prints_no_control_characters() -> None:
    held = commits_command.CommittedPartition(TopicPartition(EVIL, 3), 43, OffsetRanges([(45, 48)]), EVIL)
    console = screen()
    console.print(commits_command._table([held]), commits_command._holes_table([held]), markup=False)
    assert text_of(console).count(f"{SHOWN}-3") == 2
    terminal.print_json(console, commits_command.report_of(EVIL, [held]))
    assert text_of(console).isascii()


def test_decode_prints_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Clients and brokers chose each text of a captured frame."""
    request = registry.message("ApiVersionsRequest")(client_software_name=EVIL, client_software_version=EVIL)
    decode_command.show(frames.request(18, 3, 7, EVIL, request), None, b"")
    printed = capsys.readouterr().out
    assert printed.count("owned") == 3
    assert not [c for c in printed if not c.isprintable() and c != "\n"]


def test_ranges_of_numbers_are_written_short() -> None:
    texts = [terminal.number_ranges(numbers) for numbers in ([3], [0, 1, 2], [5, 0, 1], [])]
    assert texts == ["3", "0-2", "0-1,5", ""]
