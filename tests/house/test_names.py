"""One name, one meaning: classes, and the files in the stories of proxy/README.md."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
PROXY = CHECKOUT / "proxy" / "kafka_share_proxy"
HOUSE = CHECKOUT / "proxy" / "README.md"
SOURCES = [path for path in sorted(PROXY.rglob("*.py")) if path.parent.name != "localkafka"]

LINES_MAX = 15
"""Maximum number of lines of one story."""
FILES_MAX = 15
"""Maximum number of files that a reader opens to follow one story."""
STORIES = (
    "A forwarded Produce",
    "A ShareFetch",
    "A Fetch of a view",
    "A ShareGroupHeartbeat",
    "An individual commit",
    "One poll of the Trio consumer",
    "One batch of the Spark source",
    "The audit job",
)
FILE = re.compile(r"`([a-z_]+(?:/[a-z0-9_]+)*/_?[a-z0-9_]+\.(?:py|c|h))`")


def public_classes(path: Path) -> list[str]:
    """Return the classes of one file that other files may import."""
    return [
        node.name
        for node in sources.parsed(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def repeated(classes: dict[str, list[str]]) -> dict[str, list[str]]:
    """Name -> the files that have it, of names that several have."""
    files_by_name = defaultdict(list)
    for file, names in classes.items():
        for name in names:
            files_by_name[name].append(file)
    return {name: files for name, files in files_by_name.items() if len(files) > 1}


def test_a_public_class_has_a_unique_name() -> None:
    classes = {path.relative_to(PROXY).as_posix(): public_classes(path) for path in SOURCES}
    assert repeated(classes) == {}


def test_a_repeated_name_is_found() -> None:
    assert repeated({"a.py": ["View", "Plan"], "b.py": ["View"]}) == {"View": ["a.py", "b.py"]}


def story(title: str) -> list[str]:
    """Return the lines of one story."""
    text = HOUSE.read_text()
    begin = text.index(f"### {title}\n") + len(f"### {title}\n")
    end = re.search(r"^##", text[begin:], re.MULTILINE)
    lines = text[begin : begin + end.start() if end else len(text)].strip().splitlines()
    return [line for line in lines if line]


@pytest.mark.parametrize("title", STORIES)
def test_a_story_has_few_lines_and_names_existing_files(title: str) -> None:
    lines = story(title)
    files = dict.fromkeys(FILE.findall(" ".join(lines)))
    assert 0 < len(lines) <= LINES_MAX
    assert 3 < len(files) <= FILES_MAX
    assert [file for file in files if not (PROXY / file).is_file()] == []


def test_every_file_that_the_house_names_exists() -> None:
    named_files = FILE.findall(HOUSE.read_text())
    made_in_the_example = {"views/apis/k35_describe_log_dirs.py"}
    missing = [file for file in named_files if not ((PROXY / file).is_file() or (CHECKOUT / file).is_file())]
    assert set(missing) <= made_in_the_example


def test_every_story_is_checked() -> None:
    section = HOUSE.read_text().split("\n## One request, end to end\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^### (.+)$", section, re.MULTILINE) == list(STORIES)
