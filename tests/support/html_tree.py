"""HTML as a tree, read strictly: a tag that is not closed in its place is an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    def all(self, tag: str, **attributes: str) -> Iterator[Element]:
        """Yield the elements of a tag with these attributes, in the order of the document."""
        for each in self.children:
            if isinstance(each, Element):
                if each.tag == tag and attributes.items() <= each.attributes.items():
                    yield each
                yield from each.all(tag, **attributes)

    def first(self, tag: str, **attributes: str) -> Element:
        element = next(self.all(tag, **attributes), None)
        assert element is not None, f"no {tag} {attributes} in {self.text[:500]!r}"
        return element

    def table(self, caption: str) -> list[list[str]]:
        """Return the rows of the table with this caption, without its head."""
        for table in self.all("table"):
            if table.first("caption").text == caption:
                rows = table.first("tbody").all("tr")
                return [[cell.text for cell in row.children if isinstance(cell, Element)] for row in rows]
        raise AssertionError(f"no table {caption!r} in {self.text[:2000]!r}")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute of {tag} twice: {attrs}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> inside {self._open[-1].tag}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def tree(self) -> Element:
        assert len(self._open) == 1, f"{self._open[-1].tag} is not closed"
        return self.root


def read(page: str) -> Element:
    """Return the root, whose children are those of the document."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.tree()
