"""Output of the command `commits`: JSON that other programs read, and tables; at real brokers see tests/stock."""

from __future__ import annotations

import json
from dataclasses import replace

from kafka_share_proxy.app import cli
from kafka_share_proxy.app.commands import commits_command
from kafka_share_proxy.app.commands.commits_command import CommittedPartition, holes_of, report_of
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.wire.records.records import Record, build_batch
from kafka_share_proxy.wire.values import TopicPartition
from rich.console import Console
from typer.testing import CliRunner

HELD = CommittedPartition(TopicPartition("orders", 3), 43, OffsetRanges([(45, 48), (50, 51)]), "mine", 7.5)
PLAIN = CommittedPartition(TopicPartition("orders", 4), 9, OffsetRanges(), "")


def test_json_is_the_one_that_programs_read() -> None:
    """Inclusive, as in the text; names stay."""
    assert report_of("g", [HELD, PLAIN]) == {
        "group": "g",
        "partitions": [
            {
                "topic": "orders",
                "partition": 3,
                "committed_offset": 43,
                "metadata": "mine",
                "range_count": 2,
                "ranges": [{"first": 45, "last": 47}, {"first": 50, "last": 50}],
                "oldest_hole": {"first": 43, "last": 44, "age_s": 7.5},
            },
            {
                "topic": "orders",
                "partition": 4,
                "committed_offset": 9,
                "metadata": "",
                "range_count": 0,
                "ranges": [],
                "oldest_hole": None,
            },
        ],
    }
    assert holes_of("g", [HELD, PLAIN]) == {
        "group": "g",
        "holes": [
            {"topic": "orders", "partition": 3, "first": 43, "last": 44},
            {"topic": "orders", "partition": 3, "first": 48, "last": 49},
        ],
    }


def test_holes_contain_the_topic_id_by_which_a_backfill_notices_another_topic() -> None:
    known = replace(HELD, topic_id=bytes([1, *range(14), 255]))
    assert {each["topic_id"] for each in holes_of("g", [known])["holes"]} == {"AQABAgMEBQYHCAkKCwwN_w"}


def test_tables_name_partitions_and_what_keeps_them_back() -> None:
    console = Console(width=200, record=True)
    console.print(commits_command._table([HELD, PLAIN]), commits_command._holes_table([HELD]))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["orders-3", "43", "2", "43-44", "8", "s", "45-47,50-50"] in lines
    assert ["orders-4", "9", "0", "-", "-", "-"] in lines
    assert ["orders-3", "48", "49", "2"] in lines


def test_age_is_that_of_the_first_record_of_a_hole() -> None:
    """None where the hole has no record: markers, or records that compaction has taken away."""
    data = build_batch(40, [Record(b"k", b"v", timestamp=1000 + n) for n in range(5)])
    assert commits_command._written_ms(data, OffsetSpan(42, 50)) == 1002
    assert commits_command._written_ms(data, OffsetSpan(30, 40)) is None
    assert commits_command._written_ms(b"", OffsetSpan(30, 40)) is None


def test_metadata_that_is_no_text_of_ranges_is_the_users() -> None:
    assert commits_command._text_of("mine").user_text == "mine"
    assert commits_command._text_of("ic/1;nonsense").user_text == "ic/1;nonsense"
    assert list(commits_command._text_of("ic/1;5-6;u=mine").ranges) == [OffsetSpan(5, 7)]


def test_brokers_that_do_not_respond_are_named() -> None:
    result = CliRunner().invoke(cli.app, ["commits", "g", "--json", "--upstream", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr
    assert json.dumps({}) not in result.stdout
