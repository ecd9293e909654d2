"""Merging of sources, and how mistakes are collected."""

from pathlib import Path

import pytest
from kafka_share_proxy.app.settings.config_sources import FILE_BYTES_MAX, Sources


def test_later_sources_win_leaf_by_leaf(tmp_path: Path) -> None:
    """A map in one source and a single key in the next are merged, each value keeps its origin."""
    path = tmp_path / "a.yaml"
    path.write_text("a: {b: 1, c: 2}\nd: 3\nempty:\n")
    sources = Sources()
    sources.add_file(str(path))
    sources.add_environment({"KSP_A__B": "7", "OTHER": "x", "KSP_CONFIG": "ignored"})
    sources.add_flags({"d": "9", "e": None})
    assert sources.data == {"a": {"b": "7", "c": 2}, "d": "9"}
    assert sources.origin(("a", "b")) == "environment variable KSP_A__B"
    assert sources.origin(("a", "c")) == str(path)
    assert sources.origin(("d",)) == "command line"
    assert sources.origin(("nowhere",)) is None


def test_kafka_names_keep_their_dots() -> None:
    """Flags contain the dots, variables have underscores."""
    sources = Sources({("share_groups", "broker"): ["group.share.max.size"]})
    sources.add_environment({"KSP_SHARE_GROUPS__BROKER__GROUP_SHARE_MAX_SIZE": "1"})
    sources.add_flags({"share_groups.broker.group.share.other": "2"})
    assert sources.data == {"share_groups": {"broker": {"group.share.max.size": "1", "group.share.other": "2"}}}


def test_one_path_is_reported_once() -> None:
    """The first word about a setting is the one that helps; paths are sorted."""
    sources = Sources()
    sources.mistake(("b",), "wrong")
    sources.mistake(("b",), "wrong again")
    sources.mistake(("a", "x"), "also wrong")
    assert sources.report() == "2 settings cannot work:\n  a.x: also wrong\n  b: wrong"


def test_dropping_takes_out_what_is_there_and_nothing_else() -> None:
    """A path that does not exist is no harm."""
    sources = Sources()
    sources.add_flags({"a.b": 1, "a.c": 2})
    sources.drop(("a", "b"))
    sources.drop(("a", "nothing"))
    sources.drop(("x", "y", "z"))
    assert sources.data == {"a": {"c": 2}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "utf-8"),
        (b"x: " + b"y" * FILE_BYTES_MAX, "larger than"),
        (b"a: {b: 1, b: 2}", "line 1: b is written twice"),
        (b"a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
    ],
)
def test_files_that_cannot_be_used_are_a_mistake(tmp_path: Path, content: bytes, words: str) -> None:
    """Not text, too large, contradictory, or with tags that would run something."""
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    sources = Sources()
    sources.add_file(str(path))
    assert [words in mistake.text for mistake in sources.mistakes] == [True]


def test_an_empty_file_is_no_mistake(tmp_path: Path) -> None:
    """Nothing written is nothing wrong."""
    path = tmp_path / "a.yaml"
    path.write_text("# nothing\n")
    sources = Sources()
    sources.add_file(str(path))
    assert (sources.data, sources.mistakes) == ({}, [])
