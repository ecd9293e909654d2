"""HTML of a confirmation and of its result."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest
from kafka_share_proxy.app.observing import confirmation_html, status_html
from kafka_share_proxy.app.observing.confirmation_html import HEADERS

from tests.support.html_tree import Element, read

HOSTILE = "</p><script>alert('1')</script><img src=x onerror=\"alert(2)\">"
LONG = "x" * 300


def page(pieces: Iterator[bytes]) -> Element:
    return read(b"".join(pieces).decode())


def form(**facts: object) -> Element:
    preview = {"change": f"Release {HOSTILE}?", "effect": HOSTILE, "button": HOSTILE, **facts}
    return page(confirmation_html.form(preview, f"/status/confirm/{LONG}?a=1&b={HOSTILE}", {"token": HOSTILE}))


def test_every_text_of_the_form_is_escaped() -> None:
    element = form(group=HOSTILE, **{"a <fact>": 1})
    assert not list(element.all("script"))
    assert not list(element.all("img"))
    assert [each.text for each in element.all("p")][:2] == [f"Release {HOSTILE}?", HOSTILE]
    assert element.table("Details") == [["group", HOSTILE], ["a <fact>", "1"]]
    assert element.first("button").text == HOSTILE


def test_form_has_its_whole_action_and_hidden_fields() -> None:
    (element,) = form().all("form")
    assert element.attributes == {"method": "post", "action": f"/status/confirm/{LONG}?a=1&b={HOSTILE}"}
    assert element.first("input").attributes == {"type": "hidden", "name": "token", "value": HOSTILE}


@pytest.mark.parametrize(
    ("status", "title"),
    [(HTTPStatus.OK, "Done"), (HTTPStatus.ACCEPTED, "Accepted"), (HTTPStatus.BAD_GATEWAY, "Nothing was changed")],
)
def test_result_shows_reasons_as_notes_and_facts_as_rows(status: HTTPStatus, title: str) -> None:
    body = {"reason": HOSTILE, "reasons": ["a", "b"], "released_records": 3, "durable": False}
    element = page(confirmation_html.result(status, body))
    assert element.first("h2").text == title
    assert [each.text for each in element.first("section").all("p")] == [HOSTILE, "a", "b"]
    assert element.table("Details") == [["released records", "3"], ["durable", "no"]]
    assert element.first("a").attributes["href"] == "/status"


def test_policy_allows_the_form_and_nothing_else() -> None:
    headers = dict(HEADERS)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "form-action 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src" not in policy
    assert status_html.hash_of(status_html.STYLE) in policy
    assert headers["Referrer-Policy"] == "same-origin", "no-referrer would make browsers send Origin: null"
