"""Unsettled offsets by key: the C extension and its Python fallback, against a list of records."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from kafka_share_proxy.sharegroups.kernel import key_table
from kafka_share_proxy.sharegroups.kernel.key_table import INT64_MAX, TRIMMED_AT_ONCE, KeyTable, PythonKeyTable

TABLES: dict[str, Callable[[], KeyTable]] = {"python": PythonKeyTable}
if key_table._key_table is not None:
    TABLES["c"] = lambda: key_table._key_table.KeyTable(29)
HASHES = (0, 1, 2, 1 << 32, (1 << 64) - 1, (1 << 64) - 2, 1 << 63)


@pytest.fixture(params=sorted(TABLES))
def table(request: pytest.FixtureRequest) -> KeyTable:
    return TABLES[request.param]()


def test_the_extension_is_in_use_where_it_was_built() -> None:
    if key_table._key_table is None:
        pytest.skip("it was not built")
    assert key_table.KERNEL == "c"
    assert type(key_table.new_key_table()) is key_table._key_table.KeyTable


def add(table: KeyTable, first: int, hashes: list[int]) -> list[int]:
    return table.add(array("q", range(first, first + len(hashes))), array("Q", hashes))


def test_settled_offsets_leave_no_entry(table: KeyTable) -> None:
    assert add(table, 0, [0, 1, 2, 0, 1, 2]) == [3, 4, 5]
    assert table.settle([(4, 4)]) == []
    assert table.blocked == 2
    assert table.settle([(0, 2)]) == [3, 5]
    assert table.settle([(3, 3)]) == []
    assert table.settle([(5, 99)]) == []
    table.trim(6)
    assert (table.settled_from(0), table.blocked, table.hottest(5)) == (0, 0, [])
    assert add(table, 6, [0, 0]) == [7]


def test_keys_of_many_settled_offsets_are_forgotten_together(table: KeyTable) -> None:
    add(table, 0, list(range(3 * TRIMMED_AT_ONCE)))
    table.settle([(0, 2 * TRIMMED_AT_ONCE - 1)])
    table.trim(TRIMMED_AT_ONCE - 1)
    assert table.settled_from(0) == 2 * TRIMMED_AT_ONCE
    table.trim(2 * TRIMMED_AT_ONCE)
    assert table.settled_from(0) == 0
    assert add(table, 3 * TRIMMED_AT_ONCE, [2 * TRIMMED_AT_ONCE]) == [3 * TRIMMED_AT_ONCE]


def test_records_settled_together_free_only_what_remains(table: KeyTable) -> None:
    assert add(table, 10, [5, 5, 5, 6, 5]) == [11, 12, 14]
    assert table.settle([(10, 11), (13, 13)]) == [12]
    assert table.settle([(12, 14)]) == []
    assert table.blocked == 0


def test_a_key_of_very_many_records_is_settled_one_by_one(table: KeyTable) -> None:
    count = 5_000
    assert len(add(table, 0, [9] * count)) == count - 1
    assert table.hottest(1) == [(9, 0, count - 1)]
    for offset in range(count - 1):
        assert table.settle([(offset, offset)]) == [offset + 1]
    assert table.settle([(count - 1, INT64_MAX - 1)]) == []


def test_only_blocked_offsets_are_blocked(table: KeyTable) -> None:
    table.add(array("q", [3, 5, 8]), array("Q", [1, 2, 1]))
    assert [offset for offset in range(10) if table.is_blocked(offset)] == [8]


class Records:
    """The same by a list of records, without any table."""

    def __init__(self) -> None:
        self.unsettled: list[tuple[int, int]] = []

    def firsts(self) -> set[int]:
        first: dict[int, int] = {}
        for offset, key_hash in self.unsettled:
            first.setdefault(key_hash, offset)
        return set(first.values())

    def remove(self, is_removed: Callable[[int], bool]) -> list[int]:
        before = self.firsts()
        self.unsettled = [each for each in self.unsettled if not is_removed(each[0])]
        return sorted(self.firsts() - before)

    @property
    def blocked(self) -> list[int]:
        firsts = self.firsts()
        return [offset for offset, _ in self.unsettled if offset not in firsts]

    def hottest(self, most: int) -> list[tuple[int, int, int]]:
        keys: dict[int, list[int]] = {}
        for offset, key_hash in self.unsettled:
            keys.setdefault(key_hash, []).append(offset)
        waiting = [(key, offsets[0], len(offsets) - 1) for key, offsets in keys.items() if len(offsets) > 1]
        return sorted(waiting, key=lambda each: (-each[2], each[1]))[:most]


class Play:
    """One table and the list, with the same changes."""

    def __init__(self, dice: Random, table: KeyTable) -> None:
        self.dice, self.table, self.records = dice, table, Records()
        self.start = self.end = dice.choice([0, 1 << 40])
        self.keys = dice.choice([HASHES, range(300), [dice.getrandbits(64) for _ in range(dice.choice([20, 3_000]))]])

    def add(self) -> None:
        offsets = sorted(self.dice.sample(range(self.end, self.end + 60), self.dice.randint(0, 40)))
        hashes = [self.dice.choice(self.keys) for _ in offsets]
        self.end += 60
        self.records.unsettled += zip(offsets, hashes, strict=True)
        blocked = [offset for offset in self.records.blocked if offset in offsets]
        assert self.table.add(array("q", offsets), array("Q", hashes)) == blocked

    def settle(self) -> None:
        unsettled = [offset for offset, _ in self.records.unsettled]
        chosen = sorted(self.dice.sample(unsettled, self.dice.randint(0, len(unsettled))))
        ranges = [(offset, offset) for offset in chosen]
        if self.dice.random() < 0.3 and unsettled:  # all of a range
            first, last = sorted(self.dice.choices(range(unsettled[0], unsettled[-1] + 1), k=2))
            held = [offset for offset in unsettled if first <= offset <= last]
            ranges, chosen = ([(held[0], held[-1])] if self._are_whole(held) else []), held
            chosen = chosen if ranges else []
        freed = self.records.remove(set(chosen).__contains__)
        assert self.table.settle(ranges) == freed

    def _are_whole(self, held: list[int]) -> bool:
        """True if nothing between them was settled before: only unsettled ranges may be settled."""
        return bool(held) and self.table.settled_from(held[0]) - self.table.settled_from(held[-1]) == 0

    def log_start(self) -> None:
        self.start = self.dice.randint(self.start, self.end)
        start = self.start
        assert self.table.settle_below(start) == self.records.remove(lambda offset: offset < start)

    def trim(self) -> None:
        self.start = min([offset for offset, _ in self.records.unsettled], default=self.end)
        self.table.trim(self.start)

    def drop(self) -> None:
        end = self.end = self.dice.randint(self.start, self.end)
        self.records.remove(lambda offset: offset >= end)
        self.table.drop_from(end)

    def step(self) -> None:
        self.dice.choices([self.add, self.settle, self.log_start, self.trim, self.drop], [40, 40, 2, 5, 2])[0]()
        blocked = self.records.blocked
        assert (self.table.blocked, self.table.unsettled) == (len(blocked), len(self.records.unsettled))
        assert all(self.table.is_blocked(offset) for offset in blocked)
        assert self.table.hottest(5) == self.records.hottest(5)


@pytest.mark.parametrize("seed", range(40))
def test_any_changes_leave_what_a_list_of_records_shows(table: KeyTable, seed: int) -> None:
    play = Play(Random(seed), table)
    for _ in range(120):
        play.step()


WRONG: list[tuple[str, Callable[[Any], object], type[Exception]]] = [
    ("different lengths", lambda table: table.add(array("q", [1]), array("Q")), ValueError),
    ("smaller numbers", lambda table: table.add(array("i", [1]), array("I", [1])), ValueError),
    ("descending", lambda table: table.add(array("q", [2, 1]), array("Q", [1, 2])), ValueError),
    ("no arrays", lambda table: table.add([1], [1]), TypeError),
    ("no list", lambda table: table.settle(((1, 2),)), TypeError),
    ("no pairs", lambda table: table.settle([(1,)]), TypeError),
    ("no tuples", lambda table: table.settle([[1, 2]]), TypeError),
    ("no number", lambda table: table.trim("1"), TypeError),
    ("too many", lambda table: table.hottest(0), ValueError),
]


@pytest.mark.parametrize(("call", "error"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG])
def test_the_extension_refuses_wrong_arguments(call: Callable[[Any], object], error: type[Exception]) -> None:
    if "c" not in TABLES:
        pytest.skip("it was not built")
    with pytest.raises(error):
        call(TABLES["c"]())
