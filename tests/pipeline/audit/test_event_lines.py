"""Lines are rows of Arrow exactly where Spark would say the same of them (pipeline/README.md rules 26 and 27)."""

from __future__ import annotations

import json
from collections import Counter

from kafka_share_proxy.pipeline.audit.event_lines import FEW_LINES, LINE_BYTES, Block, parsed_block

from tests.support.odd_lines import BROKEN, ODD, TAKEN, with_


def test_usual_lines_of_common_events_are_rows() -> None:
    for line in TAKEN:
        rows, other_lines = parsed_block(Block(line.encode()))
        assert (len(rows), other_lines) == (1, []), line
        read = json.loads(line)
        assert {name: value for name, value in rows.to_pylist()[0].items() if value is not None} == {
            name: value for name, value in read.items() if name in rows.column_names and value is not None
        }


def test_all_other_lines_are_handed_on_as_they_are() -> None:
    """Each alone, and between others: n objects on n lines are not one on each."""
    for line in [*(each.encode() for each in ODD), *BROKEN]:
        assert parsed_block(Block(line)).other_lines == [line]
        rows, other_lines = parsed_block(
            Block(b"\n".join([TAKEN[0].encode(), line, TAKEN[0].encode(), b"", b"{", b'"v": 2}']))
        )
        assert len(rows) + len(other_lines) == 5
        assert {line, b"{", b'"v": 2}'} <= set(other_lines)
    rows, other_lines = parsed_block(Block(TAKEN[0].encode(), [b"held\nends"]))
    assert (len(rows), other_lines) == (1, [b"held\nends"])
    assert parsed_block(Block(b"\n\n")) == (rows.slice(0, 0), [])


def test_a_line_that_is_refused_takes_few_others_with_it() -> None:
    lines = [with_(f'"renews": {number}').encode() for number in range(50 * FEW_LINES)]
    lines[1_000] = lines[2_500] = ODD[0].encode()
    rows, other_lines = parsed_block(Block(b"\n".join(lines)))
    assert len(rows) + len(other_lines) == len(lines)
    assert len(other_lines) <= 2 * FEW_LINES
    assert max(map(len, lines)) < LINE_BYTES
    renewals = [*rows["renews"].to_pylist(), *(json.loads(line)["renews"] for line in other_lines)]
    assert Counter(renewals) == Counter(json.loads(line)["renews"] for line in lines)
