"""Responses recorded from real brokers (tests/golden), and the expected results of rewriting."""

from __future__ import annotations

from pathlib import Path

from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Context, header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.wire.codec import headers
from kafka_share_proxy.wire.definitions import endpoints, registry

FOLDER = Path(__file__).parents[1] / "golden"
OURS = "a.proxy.example", 20001


def recorded(api: str) -> list[tuple[str, int, bytes]]:
    """(release, version, response frame without size), of everything recorded of an API."""
    paths = sorted(FOLDER.glob(f"*/{api}.v*.hex"))
    assert paths, f"nothing recorded of {api}"
    return [(path.parent.name, int(path.stem.split(".v")[1]), bytes.fromhex(path.read_text())) for path in paths]


def rewritten(key: int, version: int, frame: bytes) -> bytes:
    """Return what a client gets, with size."""
    book = AddressBook(20000, OURS[0], lambda *_: True)
    routes = route_table.build(book, EffectiveVersions(Offer()), Limits(), {})
    reported = routes[header(key, version)].rewrite(memoryview(frame), Context(node_id=1))
    return reported if reported is not None else len(frame).to_bytes(4, "big") + frame


def replaced(key: int, version: int, frame: bytes) -> bytes:
    """The same bytes with the one broker's address exchanged by search and replace, with size."""
    body = headers.response_body_offset(key, version, frame)
    located = endpoints.locator(key, version)(frame, body)
    theirs = {(endpoint.host, endpoint.port) for endpoint in located}
    assert len(theirs) == 1, registry.API_KEYS[key]
    old = endpoints.encode(key, version, *theirs.pop())
    assert frame.count(old) == len(located)
    new = frame.replace(old, endpoints.encode(key, version, *OURS))
    return len(new).to_bytes(4, "big") + new
