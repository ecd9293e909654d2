"""HTML of a confirmation and of its result (app/README.md rules 1 and 18)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from kafka_share_proxy.app.observing import status_html
from kafka_share_proxy.app.observing.status_html import STYLE, text
from kafka_share_proxy.feature.status import Alarm, Cell, StatusSection, StatusTable

FACTS = ("What", "Value")
BACK = '<p><a href="/status">Back to the status page</a></p>\n'
HEAD = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<link rel="icon" href="data:,">
<title>kafka-share-proxy</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>kafka-share-proxy</h1></header>
<main>
"""
TAIL = "</main>\n</body>\n</html>\n"

HEADERS = (
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src {status_html.hash_of(STYLE)}; img-src data:; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
"""Headers of the response. With `no-referrer`, browsers would send `Origin: null` with the form (Fetch standard)."""


def form(preview: Mapping[str, Any], action: str, hidden: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the page with a change, its consequences, and the form that makes it.

    Args:
        preview: "change", "effect", "button", and facts.
        action: path of the POST, percent-encoded.
        hidden: fields of the form.
    """
    yield HEAD.encode()
    facts = [(name, preview[name]) for name in preview if name not in ("change", "button", "effect")]
    yield from _section("Confirm", [str(preview["change"]), str(preview["effect"])], facts)
    fields = "".join(
        f'<input type="hidden" name="{text(name)}" value="{text(value)}">' for name, value in hidden.items()
    )
    button = f'<button type="submit">{text(str(preview["button"]))}</button>'
    yield f'<form method="post" action="{text(action, len(action))}">{fields}<p>{button}</p></form>\n'.encode()
    yield (BACK + TAIL).encode()


def result(status: HTTPStatus, body: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the page with the result of a change, or the reason why it was refused."""
    yield HEAD.encode()
    titles = {HTTPStatus.OK: "Done", HTTPStatus.ACCEPTED: "Accepted"}
    reasons = [str(each) for each in (body.get("reason"), *body.get("reasons", ())) if each]
    facts = [(name, body[name]) for name in body if name not in ("reason", "reasons")]
    yield from _section(titles.get(status, "Nothing was changed"), reasons, facts)
    yield (BACK + TAIL).encode()


def _section(title: str, notes: list[str], facts: list[tuple[str, Any]]) -> Iterator[bytes]:
    rows = [(name.replace("_", " "), _cell(value)) for name, value in facts]
    tables = (StatusTable("Details", FACTS, rows),) if rows else ()
    for piece in status_html.section(StatusSection(title, notes, tables)):
        yield piece.encode()


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else Alarm("no")
    return value if isinstance(value, int) else str(value)
