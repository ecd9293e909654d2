"""Settings of Sphinx: `python -m sphinx -W -b html docs build/docs`."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from reference import GENERATED  # noqa: E402 - a module of this folder

project = "kafka-share-proxy"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
html_title = f"{project} {release}"

extensions = ["myst_parser"]
exclude_patterns: list[str] = []
nitpicky = True
myst_enable_extensions = ["attrs_block"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings: list[str] = []

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sourcelink = False
highlight_language = "none"
smartquotes = False  # options begin with two hyphens
pygments_style = "friendly"

PLACE = re.compile(r"<!-- generated: ([\w-]+) -->")


LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[\w./-]+)\)")
"""Link to a file or folder that may be outside docs/."""


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Insert what docs/reference.py generates, and let links to Markdown files outside docs/ load the file.

    A link to a folder remains as its text.
    """
    folder = (Path(app.srcdir) / page).parent

    def linked(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        if target.is_dir():
            return found[1]
        is_outside = target.suffix == ".md" and not target.is_relative_to(app.srcdir)
        return f"[{found[1]}](path:{found[2]})" if is_outside else found[0]

    source[0] = LINK.sub(linked, PLACE.sub(lambda found: GENERATED[found[1]](), source[0]))


def setup(app: Any) -> None:
    app.connect("source-read", prepare)
