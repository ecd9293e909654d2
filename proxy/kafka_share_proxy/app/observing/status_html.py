"""HTML of the status page (app/README.md rules 1 to 4): one page with its own style and script."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from kafka_share_proxy.feature.status import (
    ROWS_MAX,
    Alarm,
    Cell,
    Change,
    Detail,
    HeatCell,
    HeatMap,
    Link,
    Seconds,
    StatusSection,
    StatusTable,
)

TEXT_MAX = 120
"""Maximum number of characters of one text."""
NOTE_MAX = 1_000
"""Maximum number of characters of one note."""
HEAT_LEVELS = 8
CHANGE = "Change"
CONFIRM = "/status/confirm"
"""Path of the confirmation of a change, whose own path follows."""
MINUTE, HOUR, DAY = 60, 3600, 86_400

STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--faint:#57606a;--line:#d0d7de;--band:#f3f5f8;--alarm:#b42318;
--link:#0550ae;--hot:9,105,218}
@media(prefers-color-scheme:dark){:root{--page:#0f141a;--ink:#e6edf3;--faint:#9aa5b1;--line:#30363d;--band:#181f27;
--alarm:#ff8f85;--link:#79b8ff;--hot:88,166,255}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:80rem;padding:1rem;background:var(--page);color:var(--ink);
font:0.95rem/1.45 system-ui,"DejaVu Sans",sans-serif}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:.25rem 1.5rem;border-bottom:1px solid var(--line);
padding-bottom:.5rem}
h1{font-size:1.25rem;margin:0}h2{font-size:1.1rem;margin:1.75rem 0 .25rem}
p{margin:.35rem 0;overflow-wrap:anywhere}.faint{color:var(--faint)}
.alarm{color:var(--alarm);font-weight:600}a{color:var(--link)}
.scroll{overflow-x:auto;margin:.5rem 0 1rem}
table{border-collapse:collapse;min-width:min(100%,24rem);font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:.25rem 0;white-space:nowrap}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
thead th{background:var(--band);font-weight:600}
td.number,th.number{text-align:right}
button{font:inherit;font-weight:600;padding:.4rem .9rem;border:1px solid var(--alarm);border-radius:.4rem;
background:var(--page);color:var(--alarm);cursor:pointer}
details{border:1px solid var(--line);border-radius:.4rem;margin:.4rem 0;padding:.3rem .7rem}
summary{cursor:pointer;font-weight:600;overflow-wrap:anywhere}
table.heat{min-width:0}table.heat td,table.heat th{padding:.2rem .35rem;text-align:right;min-width:2.4rem}
@media(max-width:40rem){body{padding:.6rem;font-size:.9rem}th,td{padding:.25rem .4rem}}
""" + "".join(
    f".heat{level}{{background:rgba(var(--hot),{0.06 + 0.5 * level / HEAT_LEVELS:.2f})}}"
    for level in range(HEAT_LEVELS + 1)
)

SCRIPT = """
const live = document.getElementById('live'), told = document.getElementById('told');
document.getElementById('control').hidden = false;
async function refresh() {
  if (document.hidden || !live.checked) return;
  try {
    const response = await fetch(location.pathname, {cache: 'no-store'});
    if (!response.ok) throw new Error('status ' + response.status);
    const page = new DOMParser().parseFromString(await response.text(), 'text/html');
    for (const each of document.querySelectorAll('details[open]'))
      page.getElementById(each.id)?.setAttribute('open', '');
    document.querySelector('main').replaceWith(document.adoptNode(page.querySelector('main')));
    told.textContent = 'as of ' + new Date().toLocaleTimeString();
    told.className = 'faint';
  } catch (error) {
    told.textContent = 'no response since then (' + error.message + ')';
    told.className = 'alarm';
  }
}
setInterval(refresh, 5000);
"""

HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="referrer" content="no-referrer">
<noscript><meta http-equiv="refresh" content="5"></noscript>
<link rel="icon" href="data:,">
<title>kafka-share-proxy</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>kafka-share-proxy</h1>
<span id="control" hidden><label><input type="checkbox" id="live" checked> refresh</label>
<span id="told" class="faint" role="status"></span></span></header>
<main>
"""
TAIL = f"""</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def hash_of(content: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


HEADERS = (
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src {hash_of(STYLE)}; script-src {hash_of(SCRIPT)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)
"""Headers of the response (app/README.md rule 2)."""


def _escape(words: str) -> str:
    from html import escape  # 0.5 MiB with its names of characters, which an idle proxy does not need

    return escape(words, quote=True)


def text(value: str, limit: int = TEXT_MAX) -> str:
    """Return a text as HTML, cut to `limit` characters. Characters that are not printable are shown as codes."""
    cut = value if len(value) <= limit else value[: limit - 1] + "…"
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)
    return _escape(shown)


def section(content: StatusSection, *, may_change: bool = False) -> Iterator[str]:
    """Yield a section in pieces. `may_change`: True if the reader may change something."""
    yield f"<section><h2>{text(content.title)}</h2>\n"
    yield from _notes(content.notes)
    for table in content.tables:
        yield from _table(table, may_change)
    for detail in content.details:
        yield from _detail(content.title, detail, may_change)
    if content.details_left_out:
        yield f'<p class="faint">{content.details_left_out} more are not shown in detail.</p>\n'
    yield "</section>\n"


def _notes(notes: Sequence[str]) -> Iterator[str]:
    for note in notes:
        yield f"<p>{text(note, NOTE_MAX)}</p>\n"


def _detail(title: str, detail: Detail, may_change: bool) -> Iterator[str]:
    anchor = f"d{zlib.crc32(f'{title}/{detail.title}'.encode()):08x}"
    yield f'<details id="{anchor}"><summary>{text(detail.title)}</summary>\n'
    yield from _notes(detail.notes)
    for part in detail.parts:
        yield from _table(part, may_change) if isinstance(part, StatusTable) else _heat_map(part)
    yield "</details>\n"


def _table(table: StatusTable, may_change: bool) -> Iterator[str]:
    if may_change and any(table.changes):
        table = _with_changes(table)
    if not table.rows:
        yield f'<p class="faint">{text(table.title)}: none</p>\n'
        return
    numeric = [_is_numeric([row[at] for row in table.rows]) for at in range(len(table.columns))]
    yield from _opened(table.title)
    yield "<table><caption>" + text(table.title) + "</caption><thead><tr>"
    yield "".join(f"<th scope=col{_class(n)}>{text(c)}</th>" for c, n in zip(table.columns, numeric, strict=True))
    yield "</tr></thead><tbody>\n"
    for row in table.rows[:ROWS_MAX]:
        yield "<tr>" + "".join(f"<td{_class(n)}>{_cell(c)}</td>" for c, n in zip(row, numeric, strict=True)) + "</tr>\n"
    yield "</tbody></table></div>\n"
    yield from _left_out(table.left_out + max(len(table.rows) - ROWS_MAX, 0))


def _with_changes(table: StatusTable) -> StatusTable:
    rows = [(*row, change) for row, change in zip(table.rows, table.changes, strict=True)]
    return StatusTable(table.title, (*table.columns, CHANGE), rows, table.left_out)


def _heat_map(heat_map: HeatMap) -> Iterator[str]:
    yield from _opened(heat_map.title)
    yield f'<table class="heat"><caption>{text(heat_map.title)}</caption><thead><tr><td></td>'
    yield "".join(f"<th scope=col>{text(column)}</th>" for column in heat_map.columns) + "</tr></thead><tbody>\n"
    for label, cells in heat_map.rows:
        yield f"<tr><th scope=row>{text(label)}</th>" + "".join(map(_heat, cells)) + "</tr>\n"
    yield "</tbody></table></div>\n"
    yield from _left_out(heat_map.left_out)


def _opened(title: str) -> Iterator[str]:
    """Begin a block that scrolls by itself on narrow screens, also with the keyboard."""
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{text(title)}">'


def _left_out(count: int) -> Iterator[str]:
    if count:
        yield f'<p class="faint">{count} more are not shown.</p>\n'


def _heat(cell: HeatCell | None) -> str:
    if cell is None:
        return '<td class="faint">&ndash;</td>'
    level = round(min(max(cell.level, 0.0), 1.0) * HEAT_LEVELS)
    return f'<td class="heat{level}" title="{text(cell.about)}">{text(cell.text)}</td>'


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _is_numeric(column: Sequence[Cell]) -> bool:
    known = [cell for cell in column if cell is not None]
    return bool(known) and all(
        isinstance(cell, int | Seconds) or (isinstance(cell, Alarm) and cell.text.isdecimal()) for cell in known
    )


def _cell(cell: Cell) -> str:
    match cell:
        case None:
            return '<span class="faint">&ndash;</span>'
        case int():
            return f"{cell:,}"
        case Seconds(value):
            return duration(value)
        case Alarm(words):
            return f'<span class="alarm">{text(words)}</span>'
        case Link(words, parts):
            return _link(words, _path(parts))
        case Change(words, parts):
            return _link(words, f"{CONFIRM}{_path(parts)}")
        case _:
            return text(cell)


def _path(parts: Sequence[str]) -> str:
    return "".join("/" + quote(part, safe="", errors="replace") for part in parts)


def _link(words: str, path: str) -> str:
    return f'<a href="{_escape(path)}">{text(words)}</a>'


def duration(seconds: float) -> str:
    """Return a duration in at most two units."""
    sign, whole = ("-" if seconds < 0 else ""), abs(seconds)
    if whole < MINUTE:
        return f"{sign}{whole:.1f} s"
    if whole < HOUR:
        return f"{sign}{int(whole // MINUTE)} min {int(whole % MINUTE)} s"
    if whole < DAY:
        return f"{sign}{int(whole // HOUR)} h {int(whole % HOUR // MINUTE)} min"
    return f"{sign}{int(whole // DAY)} d {int(whole % DAY // HOUR)} h"
