"""Citations refer to existing parts of the repository: documents, their numbered rules, and the items of
tests/oracle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE_ROOT = CHECKOUT / "proxy"
PROXY = SOURCE_ROOT / "kafka_share_proxy"
ROOMS = sorted(SOURCE_ROOT.rglob("README.md"))
"""Documents with rules of their own, which they may name by number alone."""
FOLDERS = ("proxy", "tests", "schemas", "deploy", "docs")
SUFFIXES = {"", ".c", ".go", ".h", ".java", ".js", ".json", ".md", ".py", ".pyi", ".toml", ".yaml"}

FOREIGN: dict[str, str] = {"common/message/README.md": "in the jar of Kafka's clients"}
"""Documents of others, each with where it is."""

RELEASES = {"3.9", "4.0", "4.1", "4.2", "4.3", "4.4"}
"""Kafka releases: numbers in parentheses that are no sections of a document."""

RULE_LINES_MAX, LINE_LENGTH_MAX = 4, 120

NUMBERS = r"\d+(?:(?:-|, | and | to )\d+)*"
DOCUMENT = re.compile(rf"(?<![\w./-])([\w./-]*\w\.md)\b(?: (?:rule (\d+)|rules ({NUMBERS})))?")
RULE_ALONE = re.compile(rf"(?<!\.md )\b[Rr]ules? ({NUMBERS})")
DECISION = re.compile(rf"\b[Dd]ecisions? ({NUMBERS})")
SECTION = re.compile(r"\((?:see )?(\d{1,2}\.\d{1,2}(?:(?:-|, )\d{1,2}\.\d{1,2})*)\)")
ITEM = re.compile(rf"\b[Ii]tems? ({NUMBERS})|^\[(\d+(?:, \d+)*)\]")
HEAD = re.compile(r"^(\d+)\. \*\*", re.MULTILINE)
"""Start of a rule."""
RULE = re.compile(r"^\d+\. \*\*.*(?:\n   .*)*", re.MULTILINE)
LINE_END = re.compile(r"\s*\n\s*(?:(?:#|//|\*(?!\*))\s*)?")
COMMENT = re.compile(r"(?:^|  )# (.*)$", re.MULTILINE)


def name_of(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def files() -> Iterator[Path]:
    """Everything that may cite; this file holds made-up citations."""
    yield from sorted(CHECKOUT.glob("*.md"))
    for folder in FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__):
                yield path


def flat(text: str) -> str:
    """The text in one line, for citations that go over two."""
    return LINE_END.sub(" ", text)


def words_of(source: str) -> Iterator[str]:
    """Docstrings and comments of a Python source."""
    yield from (flat(text) for _, text in sources.docstrings(source))
    yield from COMMENT.findall(source)


def numbers(text: str) -> Iterator[int]:
    """The numbers that a list names: "20-22 and 25" are four."""
    for part in re.split(", | and ", text):
        first, _, last = part.replace(" to ", "-").partition("-")
        yield from range(int(first), int(last or first) + 1)


@cache
def rules_of(document: Path) -> frozenset[int]:
    return frozenset(map(int, HEAD.findall(document.read_text())))


@cache
def document_at(cited: str) -> Path | None:
    """Return the document, seen from the checkout, the package, docs/ or, with `../`, from a folder in one of these."""
    plain = re.sub(r"^(?:\.\./)+", "", cited)
    bases = (CHECKOUT, PROXY, SOURCE_ROOT, CHECKOUT / "docs")
    return next((base / plain for base in bases if (base / plain).is_file()), None)


# What cannot be looked up


def documents_missing(text: str) -> Iterator[str]:
    """Documents that are not here, and rules that a document does not have."""
    for cited, one, several in DOCUMENT.findall(text):
        document = document_at(cited)
        if document is None:
            if cited not in FOREIGN:
                yield cited
        else:
            rules = rules_of(document) | {0}
            yield from (f"{cited} rule {number}" for number in numbers(one or several or "0") if number not in rules)


def numbers_alone(text: str) -> Iterator[str]:
    """Rules and decisions by number, without a document."""
    for word, pattern in (("rule", RULE_ALONE), ("decision", DECISION)):
        for listed in pattern.findall(text):
            yield from (f"{word} {number}" for number in numbers(listed))


def sections(text: str) -> Iterator[str]:
    """Sections of an unnamed document, in parentheses."""
    for listed in SECTION.findall(text):
        if not set(re.split("-|, ", listed)) <= RELEASES:
            yield f"({listed})"


def items_missing(text: str, known: frozenset[int]) -> Iterator[str]:
    """Items that are not known."""
    for cited, bracketed in ITEM.findall(text):
        yield from (f"item {number}" for number in numbers(cited or bracketed) if number not in known)


@cache
def missing_in(path: Path) -> frozenset[str]:
    """Return the citations of a file that refer to nothing."""
    source = path.read_text(errors="replace")
    text = flat(source)
    missing = set(documents_missing(text))
    own = {f"rule {number}" for number in rules_of(path)} if path in ROOMS else set()
    missing |= set(numbers_alone(text)) - own
    if path.suffix == ".py":
        missing |= {each for words in words_of(source) for each in sections(words)}
    return frozenset(missing)


@cache
def known_items() -> frozenset[int]:
    """Items with a script, and those of which the test of two worlds says where they are."""
    oracle = CHECKOUT / "tests" / "oracle"
    scripts = [n for path in oracle.glob("*.py") for n in re.findall(r"^@item\((\d+)", path.read_text(), re.MULTILINE)]
    explained = re.findall(r'^    (\d+): "', (oracle / "test_two_worlds.py").read_text(), re.MULTILINE)
    return frozenset(map(int, (*scripts, *explained)))


# The tests


def test_citations_exist_in_the_repository() -> None:
    missing = [f"{name_of(path)}: {each}" for path in files() for each in sorted(missing_in(path))]
    assert missing == []


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_rules_are_numbered_in_order_and_short(room: Path) -> None:
    text = room.read_text()
    assert [int(number) for number in HEAD.findall(text)] == list(range(1, len(rules_of(room)) + 1))
    for rule in RULE.findall(text):
        assert len(rule.splitlines()) <= RULE_LINES_MAX, rule
    prose = [line for line in text.splitlines() if not line.startswith("|")]  # a row of a table is one line
    assert max(map(len, prose)) <= LINE_LENGTH_MAX


def test_items_that_tests_name_are_in_the_oracle() -> None:
    missing = [
        f"{name_of(path)}: {each}"
        for path in sorted((CHECKOUT / "tests").rglob("*.py"))
        if path != Path(__file__)
        for words in words_of(path.read_text())
        for each in items_missing(words, known_items())
    ]
    assert missing == []


ROOM, SOURCES = "sharegroups/README.md", "proxy/kafka_share_proxy"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("as no-such.md 4.5 has it", ["no-such.md"]),
        ("(no/such.md)", ["no/such.md"]),
        (f"{ROOM} rule 999", [f"{ROOM} rule 999"]),
        (f"{ROOM} rules 1-3 and 998, 3", [f"{ROOM} rule 998"]),
        (f"{SOURCES}/{ROOM} rules 998 to 999", [f"{SOURCES}/{ROOM} rule 998", f"{SOURCES}/{ROOM} rule 999"]),
        (f"({ROOM}\n    # rule 999)", [f"{ROOM} rule 999"]),
        (f"README.md, {ROOM}, {ROOM} rule 1, 50 of them, {SOURCES}/{ROOM} rules 2, 3 and 5-7", []),
        ("Kafka's own (common/message/README.md)", []),
    ],
)
def test_documents_and_rules_that_are_not_here_are_found(text: str, missing: list[str]) -> None:
    assert [*documents_missing(flat(text))] == missing


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("moved (decision 19)", ["decision 19"]),
        ("Decisions 20-22.", ["decision 20", "decision 21", "decision 22"]),
        ("Source: rule 5", ["rule 5"]),
        ("Rules 6 and 8 of it", ["rule 6", "rule 8"]),
        (f"{ROOM} rule 999, durable/README.md rules 1, 2", []),
        ("our decision, because 3 rules say so", []),
    ],
)
def test_numbers_without_a_document_are_found(text: str, missing: list[str]) -> None:
    assert [*numbers_alone(text)] == missing


def test_sections_and_items_that_are_nowhere_are_found() -> None:
    assert [*sections("The limit (6.1), and the rest (see 4.2, 4.5)")] == ["(6.1)", "(4.2, 4.5)"]
    assert [*sections("Brokers (3.9, 4.3) of Kafka (4.2)")] == []
    known = frozenset({3, 4})
    assert [*items_missing("Items 3 to 5, and item 9", known)] == ["item 5", "item 9"]
    assert [*items_missing("[3, 7] The same", known)] == ["item 7"]
    assert [*items_missing("ranges[3] is no citation", known)] == []


def test_docstrings_and_comments_are_inspected() -> None:
    source = '"""What it is."""\nx = 1.5  # why (6.1)\n"""Of x."""\n# more\ny = "(7.1)"\n'
    assert [*words_of(source)] == ["What it is.", "Of x.", "why (6.1)", "more"]
