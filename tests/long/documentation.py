"""The documentation in headless Chromium: no page is wider than a phone, and pictures to look at in build/pictures.

`tests/run tests/long/documentation.py`. Chromium must be installed (Debian: apt-get install chromium-headless-shell
fonts-dejavu-core). A minute.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_build import built as built
from tests.long.monitoring import WIDTHS, Browser
from tests.long.monitoring import browser as browser
from tests.long.monitoring import chromium as chromium
from tests.support import documents

pytestmark = [pytest.mark.long, pytest.mark.slow]

LOOKED_AT = ("index", "start", "share-groups", "differs-from-native", "clients", "reference/settings")
MEASURE = "<script>document.documentElement.dataset.width = document.documentElement.scrollWidth</script>"
NAMES = [path.relative_to(documents.DOCS).with_suffix("").as_posix() for path in sorted(documents.DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", NAMES)
def test_no_page_is_wider_than_a_phone(built: Path, chromium: Browser, name: str) -> None:
    """Wide tables and programs scroll within the page."""
    page = built / f"{name}.html"
    measured = page.with_name(f"measured-{page.name}")
    measured.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    width = WIDTHS["phone"]
    document = chromium.run("--dump-dom", f"--window-size={width},900", measured.as_uri())
    (diagram_width,) = [part.split('"')[0] for part in document.split('data-width="')[1:]]
    assert 0 < int(diagram_width) <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
@pytest.mark.parametrize("name", LOOKED_AT)
def test_pictures_are_taken(built: Path, chromium: Browser, name: str, device: str, scheme: str) -> None:
    picture = f"docs-{Path(name).name}-{device}-{scheme}"
    page = (built / f"{name}.html").as_uri()
    assert len(chromium.picture(page, picture, WIDTHS[device], 1400, scheme)) > 20_000
