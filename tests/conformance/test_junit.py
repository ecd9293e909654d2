"""Common parts of the reports in JUnit's XML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from kafka_share_proxy.conformance.junit import document, xml_text


@pytest.mark.parametrize("character", ["\0", "\x1b", "\ud800", "\ufffe", "\uffff"])
def test_characters_that_xml_does_not_allow_are_replaced(character: str) -> None:
    """The Python parser accepts the last two; those of CI servers do not."""
    root = ElementTree.Element("failure", message=xml_text(f"a{character}b"))
    assert ElementTree.fromstring(document(root)).get("message") == "a?b"


def test_a_text_that_xml_allows_is_unchanged() -> None:
    assert xml_text("line\n\ttab \u00fc \ud7ff \ue000") == "line\n\ttab \u00fc \ud7ff \ue000"
