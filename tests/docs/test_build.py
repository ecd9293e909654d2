"""The documentation is built without a warning, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.support import documents

BUILD_COMMAND = ("sphinx", "-W", "--keep-going", "-q", "-b", "html")
BUILD_S = 240
QUERY = re.compile(r"\?[^#]*")
BUILDERS_OWN = {"genindex.html", "search.html"}
"""Pages of Sphinx and of the theme."""


class Page(HTMLParser):
    """Ids and links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name == "id":
                self.ids.add(value)
            elif value and name in {"href", "src"} and not value.startswith(("http:", "https:", "data:", "mailto:")):
                self.links.append(value)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run(
        [sys.executable, "-m", *BUILD_COMMAND, "-d", str(folder / "trees"), str(documents.DOCS), str(folder / "html")],
        capture_output=True, text=True, timeout=BUILD_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(built.rglob("*.html"))}


def missing(pages: dict[Path, Page]) -> list[str]:
    """Return the links that lead to no file, or to no id of a page."""
    broken = []
    for path, page in pages.items():
        for link in page.links:
            file, fragment = map(unquote, urldefrag(QUERY.sub("", link)))
            target = (path.parent / file).resolve() if file else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or (fragment and target in pages and fragment not in pages[target].ids):
                broken.append(f"{path.name}: {link}")
    return broken


@pytest.mark.slow
def test_every_document_is_a_page(built: Path, pages: dict[Path, Page]) -> None:
    built_pages = {
        path.relative_to(built).with_suffix("").as_posix() for path in pages if path.name not in BUILDERS_OWN
    }
    written = {path.relative_to(documents.DOCS).with_suffix("").as_posix() for path in documents.DOCS.rglob("*.md")}
    assert built_pages == written


@pytest.mark.slow
def test_every_link_within_the_documentation_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert sum(len(page.links) for page in pages.values()) > 500
    assert missing(pages) == []


@pytest.mark.slow
def test_the_reference_is_filled_in_by_the_program(built: Path) -> None:
    expected = {
        "settings": "limits.connections_per_address",
        "metrics": "ksp_share_group_lag",
        "log-events": "share-fetch-at-bootstrap",
        "commands": "kafka-share-proxy pipeline ingest",
    }
    for page, text in expected.items():
        html = (built / "reference" / f"{page}.html").read_text(encoding="utf-8")
        assert text in html, page
        assert "generated:" not in html, page


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    (tmp_path / "a.html").write_text('<a href="b.html#here"></a><a href="b.html#there"></a><img src="c.png">')
    pages_by_path = {path: Page(path) for path in tmp_path.glob("*.html")}
    assert missing(pages_by_path) == ["a.html: b.html#there", "a.html: c.png"]


@pytest.mark.parametrize("document", documents.ALL, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_for_readers_of_the_source(document: Path) -> None:
    for target in documents.links(document):
        file, _, _ = target.partition("#")
        assert not file or (document.parent / file).exists(), target
