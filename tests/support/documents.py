"""The documents of the project and their examples, for tests that read them: README.md and docs/."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"

README = CHECKOUT / "README.md"
CONTRIBUTING = CHECKOUT / "CONTRIBUTING.md"
SECURITY = CHECKOUT / "SECURITY.md"
CLIENTS = DOCS / "clients.md"
CONFORMANCE = DOCS / "conformance.md"
RESULTS = DOCS / "conformance-results.md"
TESTING = DOCS / "testing.md"
INDIVIDUAL_COMMITS = DOCS / "individual-commits.md"
INSTALL = DOCS / "install.md"
OPERATE = DOCS / "operate.md"
QUEUES = DOCS / "queues.md"
SECURE = DOCS / "secure.md"
SHARE_GROUPS = DOCS / "share-groups.md"
SPARK = DOCS / "spark.md"
START = DOCS / "start.md"
TRIO = DOCS / "trio.md"
VIEWS = DOCS / "views.md"

ALL = [README, CONTRIBUTING, SECURITY, *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)


def section(document: Path, heading: str) -> str:
    """Return the text from a heading, which exists once, to the next heading of any level."""
    text = document.read_text(encoding="utf-8")
    (start,) = [
        heading_match.end()
        for heading_match in HEADING.finditer(FENCE.sub(_blanked, text))
        if heading_match[1] == heading
    ]
    following = HEADING.search(FENCE.sub(_blanked, text), start)
    return text[start : following.start() if following else len(text)]


def blocks(document: Path, language: str, heading: str | None = None) -> list[str]:
    """Return the fenced blocks of a language, of the whole document or of one section."""
    text = document.read_text(encoding="utf-8") if heading is None else section(document, heading)
    return [code for marked, code in FENCE.findall(text) if marked == language]


def block(document: Path, language: str, containing: str) -> str:
    """Return the only fenced block of a language that contains a text."""
    (code_block,) = [code for code in blocks(document, language) if containing in code]
    return code_block


def docstring_function(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return a coroutine function, compiled from the only indented block in a module's docstring that defines it."""
    examples = re.findall(r"\n\n((?: {4}.*\n|\n)+)", module.__doc__ or "")
    (code,) = [textwrap.dedent(each) for each in examples if f"async def {name}(" in each]
    names: dict[str, Any] = {}
    exec(compile(code, f"{module.__name__} {name}", "exec"), names)
    function: Callable[..., Any] = names[name]
    return function


def links(document: Path) -> list[str]:
    """Return the targets of all links that are relative."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    return [target for target in LINK.findall(text) if not target.startswith(("http:", "https:"))]


def _blanked(fence: re.Match[str]) -> str:
    """Return as many characters as a fenced block has, without its lines, which may look like headings."""
    return " " * (fence.end() - fence.start())
