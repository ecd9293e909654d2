"""Common parts of the reports in JUnit's XML."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")


def xml_text(value: str) -> str:
    """Return a text with `?` for characters that XML 1.0 does not allow, which ElementTree would write."""
    return _NOT_XML.sub("?", value)


def document(root: ElementTree.Element) -> str:
    """Return an indented document."""
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
