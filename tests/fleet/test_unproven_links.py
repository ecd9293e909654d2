"""Choice of the unproven link that is closed for a new one."""

from __future__ import annotations

from typing import cast

import pytest
from kafka_share_proxy.fleet import unproven_links
from kafka_share_proxy.fleet.peer_link import PeerLink
from kafka_share_proxy.fleet.unproven_links import UnprovenLinks


def links(count: int) -> list[PeerLink]:
    """Only their identity matters."""
    return [cast(PeerLink, object()) for _ in range(count)]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unproven_links, "UNPROVEN_MAX", 4)


def filled(*hosts: str) -> tuple[UnprovenLinks, list[PeerLink]]:
    opened_links, waiting = links(len(hosts)), UnprovenLinks()
    for link, host in zip(opened_links, hosts, strict=True):
        waiting.add(link, host)
    return waiting, opened_links


def test_the_number_of_unproven_links_is_bounded() -> None:
    waiting, opened_links = filled("a", "a", "a")
    assert waiting.link_to_close("a") is None
    waiting.add(links(1)[0], "a")
    assert waiting.link_to_close("a") is opened_links[0]


@pytest.mark.parametrize(
    ("hosts", "newcomer", "ends"),
    [
        (("member", "x", "x", "x"), "y", 1),
        (("member", "x", "x", "x"), "x", 1),
        (("member", "other", "x", "x"), "x", 2),
        (("a", "b", "c", "d"), "e", 0),
        (("a", "b", "c", "d"), "c", 2),
    ],
)
def test_the_oldest_of_the_host_with_the_most_ends(hosts: tuple[str, ...], newcomer: str, ends: int) -> None:
    """Of several hosts with equally many, the newcomer's own, else the first."""
    waiting, opened_links = filled(*hosts)
    assert waiting.link_to_close(newcomer) is opened_links[ends]


def test_a_proven_link_no_longer_counts() -> None:
    waiting, opened_links = filled("a", "a", "b", "c")
    for _ in range(2):
        waiting.remove(opened_links[0])
    assert (len(waiting), waiting.link_to_close("a")) == (3, None)
    waiting.add(links(1)[0], "b")
    assert waiting.link_to_close("c") is opened_links[2]
    assert waiting.links()[0] is opened_links[1]
