"""Tables of a report (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.pipeline.report.queue_totals import QueueTotals
from kafka_share_proxy.pipeline.report.report_job import Deliveries, Report, ViewClient, ViewGroup, _readers_of
from kafka_share_proxy.pipeline.report.report_tables import ADVICE, WHOLE_PARTITIONS, tables


def clients(*cells: tuple[str, int, int]) -> dict[str, list[dict[str, Any]]]:
    """Return rows by client: base partition, slot, ten records each."""
    rows_by_client: dict[str, list[dict[str, Any]]] = {}
    for client, partition, slot in cells:
        row = {"partition": partition, "slot": slot, "rows": 10}
        rows_by_client.setdefault(client, []).append(row)
    return rows_by_client


def whole(*cells: tuple[str, int, int]) -> dict[str, bool]:
    return {each.client: each.whole_bases for each in _readers_of("v", clients(*cells))}


def test_clients_of_an_assignor_that_gives_out_runs_have_whole_base_partitions() -> None:
    by_range = [("a", 0, 0), ("a", 0, 1), ("b", 1, 0), ("b", 1, 1)]
    assert whole(*by_range) == {"a": True, "b": True}
    assert whole(("a", 0, 0), ("b", 0, 1), ("a", 1, 0), ("b", 1, 1)) == {"a": False, "b": False}
    assert whole(*((("a", *cell[1:])) for cell in by_range)) == {"a": False}, "one client has all"
    assert whole(("a", 0, 0), ("b", 1, 0)) == {"a": False, "b": False}, "one slot a partition"


def test_readers_are_shown_as_multiples_of_the_mean() -> None:
    readers = _readers_of("v", clients(("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 1, 1)))
    assert [(each.client, each.cells, each.records, each.to_mean) for each in readers] == [
        ("a", 3, 30, 1.5),
        ("b", 1, 10, 0.5),
    ]


def test_only_tables_with_rows_are_shown() -> None:
    report = Report((), Deliveries(1, ()), (), (), (), (), 0, (ViewClient("v", "\x1b[2J", 2, True, 20, 1.5),))
    (table,) = tables(report)
    assert table.rows == (("v", "?[2J", "yes", "2", "20", "1.50"),)
    assert WHOLE_PARTITIONS in table.note


def test_a_group_with_range_is_listed_with_its_balance_and_what_helps() -> None:
    report = Report((), Deliveries(1, ()), (), (), (), (), 0)
    mine = ViewGroup("G\x1b", "__view.r4.orders", "range", 8, 1.834, ("range", "cooperative-sticky"))
    even = ViewGroup("H", "__view.r4.orders", "uniform", 8, None)
    (table,) = tables(report._replace(view_groups=(mine, even)))
    assert table.rows == (
        ("G?", "__view.r4.orders", "range", "range, cooperative-sticky", "8", "1.83"),
        ("H", "__view.r4.orders", "uniform", "-", "8", "-"),
    )
    assert table.note == (
        f"Group G?: range; 8 consumers on __view.r4.orders: heaviest consumer 1.83 x the mean. {ADVICE}"
    )
    (quiet,) = tables(report._replace(view_groups=(even, mine._replace(members=1))))
    assert ADVICE not in quiet.note


def test_queues_are_listed_with_delays_dead_letters_and_their_hottest_key() -> None:
    report = Report((), Deliveries(1, ()), (), (), (), (), 0)
    queue = QueueTotals("jobs\x1b", 1_200, 60_500, 3, 4, "00000000000000aa", 17, 1_795_262_400_000, None, 1_530, 9_000)
    (table,) = tables(report._replace(queues=(queue,)))
    assert table.title == "Queues"
    totals = ("jobs?", "00000000000000aa", "17", "9.0", "1,200", "60.5", "3", "4")
    assert table.rows == ((*totals, "2026-11-21 12:00", "-", "1.5"),)
