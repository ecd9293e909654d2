"""Each number of client/requirements.md has a test that shows it: in its name, or in its docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
LIST = CHECKOUT / "proxy/kafka_share_proxy/client/requirements.md"
PROPOSALS = ("000", "001", "002", "003")
"""Proposals of the list; 004 is covered by the tests of commits and views."""

ROW = re.compile(r"^\| ([RA]\d{3}-\d+) \| .* \| (brokers|memory) \|$", re.MULTILINE)
IN_NAMES = re.compile(r"^test_([ra]\d{3})_(\d+(?:_(?:and_)?\d+)*)_")
"""`test_a002_1_2_and_5_...` has three."""
IN_WORDS = re.compile(r"\b([RA]\d{3})-(\d+(?:(?:, | and )\d+\b)*)")
"""`R000-2, 3 and 4`."""
DIGITS = re.compile(r"\d+")


class Shown(NamedTuple):
    """A number that a test has."""

    number: str
    by: str
    on_brokers: bool


def listed() -> dict[str, str]:
    return dict(ROW.findall(LIST.read_text()))


def numbers_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    matches = [*IN_WORDS.findall(ast.get_docstring(function) or ""), *IN_NAMES.findall(function.name)]
    for proposal, numbers in matches:
        yield from (f"{proposal.upper()}-{number}" for number in DIGITS.findall(numbers))


def is_test(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A function that pytest runs, or a script of tests/oracle, which runs on brokers."""
    return function.name.startswith("test_") or _is_item(function)


def _is_item(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(each).startswith("item(") for each in function.decorator_list)


def shown_in(source: str, by: str = "") -> Iterator[Shown]:
    """The numbers of one file of tests."""
    tree = sources.parsed(source)
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    all_on_brokers = any(each.startswith("pytestmark") and "mark.broker" in each for each in marks)
    for function in sources.nodes(source):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and is_test(function):
            marked = any("mark.broker" in ast.unparse(each) for each in function.decorator_list)
            for number in numbers_of(function):
                yield Shown(number, f"{by}:{function.lineno}", all_on_brokers or marked or _is_item(function))


def shown() -> list[Shown]:
    paths = sorted((CHECKOUT / "tests").rglob("*.py"))
    return [
        each
        for path in paths
        for each in shown_in(path.read_text(), path.relative_to(CHECKOUT).as_posix())
        if each.number[1:4] in PROPOSALS
    ]


def test_the_list_is_whole() -> None:
    """The same number of each kind as in the proposals, without a gap."""
    listed_numbers = [(number[:4], int(number.partition("-")[2])) for number in listed()]
    counts = {"R000": 12, "R001": 11, "R002": 12, "R003": 9, "A000": 12, "A001": 10, "A002": 8, "A003": 9}
    assert sorted(listed_numbers) == sorted(
        (kind, number) for kind, count in counts.items() for number in range(1, count + 1)
    )


def test_each_number_has_a_test() -> None:
    shown_numbers = shown()
    on_brokers = {each.number for each in shown_numbers if each.on_brokers}
    anywhere = {each.number for each in shown_numbers}
    missing = {
        number: tried
        for number, tried in listed().items()
        if number not in (on_brokers if tried == "brokers" else anywhere)
    }
    assert missing == {}


def test_each_number_that_a_test_has_is_listed() -> None:
    known = listed()
    assert [each for each in shown() if each.number not in known] == []


def test_a_number_is_found_in_names_and_words() -> None:
    source = (
        "pytestmark = pytest.mark.broker\n"
        "def test_a002_1_2_and_5_the_newest(): 'R002-2, 4 and 11: no hole. A001-3 and 20 polls.'\n"
        "def test_a001_5_a_callback_of_3_sessions(): ...\n"
        "def helper(): 'A000-1'\n"
    )
    shown_numbers = {each.number for each in shown_in(source)}
    assert shown_numbers == {"A002-1", "A002-2", "A002-5", "R002-2", "R002-4", "R002-11", "A001-3", "A001-20", "A001-5"}
    assert all(each.on_brokers for each in shown_in(source))
    assert not any(each.on_brokers for each in shown_in("def test_a000_3_the_lists(): ..."))
