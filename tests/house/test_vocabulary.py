"""The words of the project: rejected words, each with its replacement, in identifiers and in prose.

A word whose limit is not zero has not been replaced everywhere. Its limit may only be lowered.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDERS = ("proxy", "deploy")
DOCUMENTS = ("README", "CONTRIBUTING", "SECURITY")
SCHEMAS = CHECKOUT / "schemas" / "internal"
HOUSE = CHECKOUT / "proxy" / "README.md"


class Rejected(NamedTuple):
    """A rejected word."""

    word: str
    """Pattern of the word."""
    instead: str
    limit: int = 0
    """Maximum number of uses that are left."""


NAMES = (
    Rejected("answers?|answered|answering", "response"),
    Rejected("questions?", "request, query"),
    Rejected("told", "events, response_entry, the thing that is held"),
    Rejected("tells?", "report, notify", 2),  # file.tell()
    Rejected("said|say", "acks, acknowledge, entries", 8),
    Rejected("heard|hears?", "response, received"),
    Rejected("asks?|asked", "request, query; requested, queried"),
    Rejected("nobody|somebody|anybody", "no_member, any_client"),
    Rejected("whoever|whatever|whom", "caller, owner, leader"),
    Rejected("came|comes", "on_response, received"),
    Rejected("gone", "deleted_topics, lost_members"),
    Rejected("wanted", "requested_topics, target", 1),  # key of a log event
    Rejected("turns?", "iteration"),
    Rejected("twins?", "fallback"),
    Rejected("marks?|marked", "committed_offset, group_marker", 12),
    Rejected("looks?|looked", "matcher, inspect, query", 26),
)
"""Words in identifiers. A part of an identifier is rejected, in any case: `has_answered`, `AnswerFrame`."""

WHOLE_NAMES = (
    Rejected("found", "the thing: records, entry, findings, by_node"),
    Rejected("seen", "the thing: event, state, actual, on_cluster"),
    Rejected("named", "by_name, names, partitions"),
    Rejected("left", "remaining, missing, has_left", 18),
    Rejected("others", "the thing: other_groups, shared, rest"),
    Rejected("took", "duration, count, observe", 4),
    Rejected("come", "received"),
    Rejected("kept", "the thing: retained_chunks, stored_state, shared_connections", 3),  # public; called by C
    Rejected("given", "the thing: options, assignment, returned_records", 7),  # public
    Rejected("taken", "the thing: data, chunks, outcomes"),
    Rejected("begun", "started_at, start_offsets, has_begun"),
)
"""Words that may be a part of an identifier, as in `names_seen`, but say nothing alone: as `found` or `_found`."""

PROSE = (
    Rejected("answer(?:s|ed|ing)?", "response, respond"),
    Rejected("questions?", "request, query"),
    Rejected("tells?|told", "return, report, notify"),
    Rejected("asks?|asked", "request, query"),
    Rejected("nobody|somebody", "no member, the caller, any client"),
    Rejected("whoever|whatever", "the caller, any client"),
    Rejected("behind", "after"),
    Rejected("beside|besides", "next to, in addition to"),
    Rejected("stands", "is, is stored"),
    Rejected("lies", "is"),
    Rejected("comes|came", "arrives, is received"),
    Rejected("goes on", "continues"),
    Rejected("any more|no more", "no longer"),
    Rejected("at once", "immediately"),
    Rejected("so (?:long|many|much)", "that long, that many"),
    Rejected("of its own", "separate"),
    Rejected("turns?", "iteration"),
    Rejected("twins?", "Python fallback"),
    Rejected("who (?:leads|owns)", "the leader, the owner"),
)
"""Words in docstrings, comments, Markdown documents, and descriptions of our own messages; not in `code`."""

TEST_NAMES_MAX = 8
"""Maximum number of names of test functions with a rejected word."""

ANSWERS_MAX = 100
"""Maximum number of identifiers with `answer` in proxy/ and tests/ together."""

WAIVED = {
    "local_answer_bytes": "setting",
    "local_answers_total": "metric",
    "local_answers_total_bytes": "setting",
    "local_answers_without_room": "metric",
    "unanswered_requests": "key of a log event",
}
"""Identifiers that are names of settings, metrics and log keys, which users rely on."""

GLOSSARY_MAX = 15
"""Maximum number of private words."""

PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
TEST_FUNCTION = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
LOOK_UP = re.compile(r"look(?:ed|s)?_ups?(?![a-z])")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
COMMENT = re.compile(r"^\s*//\s?(.*)$|\"(?:about|description)\": \"((?:[^\"\\]|\\.)*)\"", re.MULTILINE)
GLOSSARY_ROW = re.compile(r"^\| (?!word \|)([^|]+) \| ([^|]+) \|(.*)\|$", re.MULTILINE)

Uses = dict[str, list[str]]
"""Pattern -> places of its uses."""


def parts_of(name: str) -> Iterator[str]:
    """Yield the parts of an identifier in lower case."""
    for part in PARTS.findall(name):
        yield part.lower()


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, identifier) of a Python source."""
    yield from sources.words(source).names


def prose_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the docstrings and comments of a Python source, without code in backticks."""
    for line, text in (*sources.docstrings(source), *sources.words(source).comments):
        yield line, CODE.sub("", text)


def described_in(source: str) -> Iterator[str]:
    """Yield the comments and descriptions of a message definition."""
    for comment, description in COMMENT.findall(source):
        yield CODE.sub("", comment or description)


def files(pattern: str, *folders: str) -> Iterator[Path]:
    """Yield files of the checkout, without hidden folders."""
    for folder in folders:
        for path in sorted((CHECKOUT / folder).rglob(pattern)):
            if not any(part.startswith(".") for part in path.relative_to(CHECKOUT).parts):
                yield path


def place(path: Path, line: int, text: str) -> str:
    return f"{path.relative_to(CHECKOUT).as_posix()}:{line}: {text}"


@cache
def uses_in_names() -> Uses:
    """Return the uses of rejected words in identifiers."""
    uses: Uses = defaultdict(list)
    for path in files("*.py", *FOLDERS):
        for line, name in names_in(path.read_text()):
            for word in rejected_in(name):
                uses[word].append(place(path, line, name))
    return uses


@cache
def rejected_in(name: str) -> tuple[str, ...]:
    """Return the patterns that a part of an identifier matches."""
    parts = [] if name in WAIVED else list(parts_of(name))
    return tuple(each.word for each in NAMES if any(re.fullmatch(each.word, part) for part in parts))


@cache
def uses_as_whole_names() -> Uses:
    """Return the identifiers that consist of one rejected word."""
    uses: Uses = defaultdict(list)
    for path in files("*.py", *FOLDERS):
        for line, name in names_in(path.read_text()):
            uses[name.strip("_")].append(place(path, line, name))
    return uses


def texts() -> Iterator[tuple[Path, int, str]]:
    """Yield (file, line, text) of all prose."""
    for path in files("*.py", *FOLDERS):
        for line, text in prose_in(path.read_text()):
            yield path, line, text
    for path in (*files("*.md", *FOLDERS, "docs"), *(CHECKOUT / f"{name}.md" for name in DOCUMENTS)):
        yield path, 1, CODE.sub("", path.read_text())
    for path in sorted(SCHEMAS.glob("*.json")):
        for text in described_in(path.read_text()):
            yield path, 1, text


@cache
def uses_in_prose() -> Uses:
    """Return the uses of rejected words in prose."""
    uses: Uses = defaultdict(list)
    patterns = [(each.word, compiled(each.word)) for each in PROSE]
    for path, line, text in texts():
        for word, pattern in patterns:
            for match in pattern.finditer(text):
                around = text[max(match.start() - 30, 0) : match.end() + 30]
                uses[word].append(place(path, line + text.count("\n", 0, match.start()), " ".join(around.split())))
    return uses


def compiled(word: str) -> re.Pattern[str]:
    spaced = word.replace(" ", r"\s+")
    return re.compile(rf"\b(?:{spaced})\b", re.IGNORECASE)


def assert_few(rejected: Rejected, uses: list[str]) -> None:
    shown = "\n".join(uses[-40:])
    assert len(uses) <= rejected.limit, f"{rejected.word}: {len(uses)} uses, say {rejected.instead}:\n{shown}"


# The tests


@pytest.mark.parametrize("rejected", NAMES, ids=lambda each: each.word)
def test_identifiers_use_the_fields_words(rejected: Rejected) -> None:
    assert_few(rejected, uses_in_names()[rejected.word])


@pytest.mark.parametrize("rejected", WHOLE_NAMES, ids=lambda each: each.word)
def test_identifiers_name_what_they_hold(rejected: Rejected) -> None:
    assert_few(rejected, uses_as_whole_names()[rejected.word])


@pytest.mark.parametrize("rejected", PROSE, ids=lambda each: each.word)
def test_prose_uses_the_fields_words(rejected: Rejected) -> None:
    assert_few(rejected, uses_in_prose()[rejected.word])


def test_names_of_tests_use_the_fields_words() -> None:
    uses = [
        f"{path}: {name}"
        for path in files("*.py", "tests")
        for name in TEST_FUNCTION.findall(path.read_text())
        if rejected_in(LOOK_UP.sub("query", name))
    ]
    assert len(uses) <= TEST_NAMES_MAX, "\n".join(uses)


def test_few_identifiers_contain_answer() -> None:
    uses = [
        place(path, line, name)
        for path in files("*.py", "proxy", "tests")
        if "answer" in (source := path.read_text()).lower()
        for line, name in names_in(source)
        if "answer" in name.lower()
    ]
    assert len(uses) <= ANSWERS_MAX, "\n".join(uses)


def test_private_words_are_few_and_have_a_reason() -> None:
    section = HOUSE.read_text().split("\n## Words\n", 1)[1].split("\n## ", 1)[0]
    rows = [row for row in GLOSSARY_ROW.findall(section) if set(row[0]) != {"-"}]
    assert 0 < len(rows) <= GLOSSARY_MAX
    assert [word for word, _, reason in rows if not reason.strip()] == []


def test_rejected_words_are_recognised() -> None:
    assert [*parts_of("hasAnswered_HTTPAnswer2")] == ["has", "answered", "http", "answer", "2"]
    source = '"""It answers `answer`."""\nasked = 1  # at  once\n'
    assert [*names_in(source)] == [(2, "asked")]
    assert [text for _, text in prose_in(source)] == ["It answers .", "# at  once"]
    assert compiled("at once").search("at\nonce")
    assert not compiled("lies").search("families")
    assert [*described_in('// Names it.\n{"about": "The \\"question\\"."}')] == ["Names it.", 'The \\"question\\".']
