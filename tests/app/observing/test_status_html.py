"""HTML of the status page: escaped, bounded, without any external part."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from kafka_share_proxy.app.observing import status_html
from kafka_share_proxy.app.observing.status_html import HEAD, TAIL, TEXT_MAX, duration, section, text
from kafka_share_proxy.feature.status import (
    ROWS_MAX,
    Alarm,
    Cell,
    Detail,
    HeatCell,
    HeatMap,
    Link,
    Seconds,
    StatusSection,
    StatusTable,
)

from tests.support.html_tree import Element, read

HOSTILE = "</td></main><script>alert('1')</script><img src=x onerror=\"alert(2)\">&amp;"


def page_of(*sections: StatusSection) -> Element:
    return read(HEAD + "".join(piece for each in sections for piece in section(each)) + TAIL)


def test_every_text_of_every_part_is_escaped() -> None:
    cells: list[Cell] = [HOSTILE, Link(HOSTILE, ("groups", HOSTILE)), Alarm(HOSTILE)]
    table = StatusTable(HOSTILE, [HOSTILE, "b", "c"], [cells])
    heat = HeatMap(HOSTILE, [HOSTILE], [(HOSTILE, [HeatCell(1.0, HOSTILE, HOSTILE)])])
    page = page_of(StatusSection(HOSTILE, [HOSTILE], [table], [Detail(HOSTILE, [HOSTILE], [table, heat])]))
    assert len(list(page.all("script"))) == 1
    assert not list(page.all("img"))
    main = page.first("main")
    assert main.first("h2").text == main.first("p").text == HOSTILE
    assert [cell.text for cell in main.first("tbody").all("td")] == [HOSTILE] * 3
    assert main.first("td", **{"class": "heat8"}).attributes["title"] == HOSTILE
    (link, _) = main.all("a")
    assert link.attributes["href"].startswith("/groups/%3C%2Ftd%3E")
    assert not re.search(r"[<>\"' ]", link.attributes["href"])


def test_no_control_character_and_no_lone_surrogate_reaches_the_browser() -> None:
    assert text("a\x00b\x1b[31m\u202ec") == "a\\x00b\\x1b[31m\\x202ec"
    assert text("\ud800") == "\\xd800"
    link = Link("\ud800", ("groups", "\ud800"))
    assert "".join(section(StatusSection("\ud800", tables=[StatusTable("t", ["a"], [[link]])]))).encode()


def test_texts_and_tables_are_cut_and_what_is_missing_is_counted() -> None:
    rows = [(number,) for number in range(ROWS_MAX + 7)]
    page = page_of(StatusSection("s", tables=[StatusTable("t", ["n"], rows, left_out=3)], details_left_out=5))
    assert len(page.table("t")) == ROWS_MAX
    notes = [each.text for each in page.all("p", **{"class": "faint"})]
    assert notes == ["10 more are not shown.", "5 more are not shown in detail."]
    assert len(text("x" * 10_000)) == TEXT_MAX


def test_cells_are_shown_by_their_kind_and_numbers_are_aligned() -> None:
    row: list[Cell] = [1_234_567, None, Seconds(90.0), "words", Alarm("attention"), Link("g", ("groups", "a b/c"))]
    page = page_of(StatusSection("s", tables=[StatusTable("t", list("abcdef"), [row])]))
    assert page.table("t") == [["1,234,567", "–", "1 min 30 s", "words", "attention", "g"]]
    cells = list(page.first("tbody").all("td"))
    assert [cell.attributes.get("class") for cell in cells] == ["number", None, "number", None, None, None]
    assert page.first("a").attributes["href"] == "/groups/a%20b%2Fc"
    assert page.first("span", **{"class": "alarm"}).text == "attention"


def test_a_column_of_numbers_stays_one_with_unknown_and_alarming_ones() -> None:
    page = page_of(StatusSection("s", tables=[StatusTable("t", ["a", "b"], [(Alarm("3"), 1), (None, "x"), (0, 2)])]))
    assert [cell.attributes.get("class") for cell in page.first("thead").all("th")] == ["number", None]


def test_a_table_without_rows_is_one_line() -> None:
    page = page_of(StatusSection("s", tables=[StatusTable("Locks", ["a"], [])]))
    assert page.first("p").text == "Locks: none"
    assert not list(page.all("table"))


def test_heat_is_shown_by_classes_and_in_words() -> None:
    cells = [
        HeatCell(0.0, "0", "none"),
        HeatCell(0.5, "5", "half"),
        HeatCell(1.0, "10", "all"),
        HeatCell(7.0, "70", "more"),
        None,
    ]
    page = page_of(
        StatusSection("s", details=[Detail("v", parts=[HeatMap("t", list("abcde"), [("0", cells)], left_out=2)])])
    )
    shown = list(page.first("tbody").all("td"))
    assert [cell.attributes["class"] for cell in shown] == ["heat0", "heat4", "heat8", "heat8", "faint"]
    assert [cell.text for cell in shown] == ["0", "5", "10", "70", "–"]
    assert shown[1].attributes["title"] == "half"
    assert "2 more are not shown." in page.text


def test_details_keep_their_id_and_differ() -> None:
    sections = [StatusSection("s", details=[Detail("a"), Detail("b")]), StatusSection("t", details=[Detail("a")])]
    ids = [each.attributes["id"] for each in page_of(*sections).all("details")]
    assert len(set(ids)) == 3
    assert ids == [each.attributes["id"] for each in page_of(*sections).all("details")]
    assert all(re.fullmatch(r"[a-z0-9]+", each) for each in ids)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (60, "1 min 0 s"),
        (119.7, "1 min 59 s"),
        (3_599.9, "59 min 59 s"),
        (3600 * 5 + 61, "5 h 1 min"),
        (-3.25, "-3.2 s"),
        (86_400 * 3 + 3_600, "3 d 1 h"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_the_policy_allows_only_the_style_and_the_script_of_the_page() -> None:
    policy = dict(status_html.HEADERS)["Content-Security-Policy"]
    page = page_of()
    for tag in ("style", "script"):
        (element,) = page.all(tag)
        assert element.attributes == {}
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "frame-ancestors 'none'" in policy


def test_the_page_names_no_other_address_and_has_no_form() -> None:
    page = page_of()
    assert not list(page.all("form"))
    addresses = [each.attributes["href"] for each in page.all("link")] + re.findall(r"https?:", HEAD + TAIL)
    assert addresses == ["data:,"]
    assert not re.search(r"url\(|@import| style=|\bon\w+=", HEAD + TAIL)


def test_phones_and_colour_schemes_are_provided_for() -> None:
    page = page_of(StatusSection("s", tables=[StatusTable("t", ["a"], [(1,)])]))
    assert page.first("html").attributes["lang"] == "en"
    assert page.first("meta", name="viewport").attributes["content"] == "width=device-width,initial-scale=1"
    style = page.first("style").text
    assert "prefers-color-scheme:dark" in style
    assert page.first("div", role="region").attributes["tabindex"] == "0"
    assert [each.attributes["scope"] for each in page.first("thead").all("th")] == ["col"]
