"""The report as HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from kafka_share_proxy.conformance.suite.report_html import as_html

from tests.conformance.suite.reported import EXCHANGE, REPORT

VOID = {"meta", "br"}


class Balanced(HTMLParser):
    """Collects elements that are open, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_well_formed_and_shows_every_case() -> None:
    parser = Balanced()
    parser.feed(as_html(REPORT))
    assert parser.open == []
    for outcome in REPORT.outcomes:
        assert outcome.case.sentence in parser.text
    assert EXCHANGE.response_tree in parser.text
    assert "views: not shown" in parser.text


def test_the_page_refers_to_no_other_file() -> None:
    assert re.findall(r"(?:src|href)=\"(?!#)", as_html(REPORT)) == []
    assert "3 <x>" not in as_html(REPORT)
