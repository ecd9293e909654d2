"""The trail of requests and responses."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.building import build
from kafka_share_proxy.conformance.suite.exchanges import HEX_BYTES, KEPT_EXCHANGES, Exchange, Trail
from kafka_share_proxy.wire.codec import frames

from tests.support.scripted_peer import versions


def test_both_sides_are_shown_as_trees_and_the_response_as_hex() -> None:
    request = frames.request(18, 0, 7, "c", build("ApiVersions"))[4:]
    response = frames.response(18, 0, 7, versions(Fetch=(4, 17)))[4:]
    exchange = Exchange(18, 0, request, response)
    assert exchange.name == "ApiVersions v0"
    assert "correlation_id: 7" in exchange.request_tree
    assert "MaxVersion: 17" in exchange.response_tree
    assert exchange.response_hex.replace(" ", "") == response.hex()


def test_a_missing_response_is_shown_by_its_reason() -> None:
    exchange = Exchange(18, 0, b"", ending="the peer closed the connection")
    assert exchange.response_tree == "the peer closed the connection"
    assert exchange.response_hex == ""


def test_bytes_that_cannot_be_decoded_are_shown_with_the_reason() -> None:
    assert "cannot be read" in Exchange(18, 0, b"", b"\0\0\0\1").response_tree


def test_long_responses_are_truncated() -> None:
    shown = Exchange(18, 0, b"", bytes(HEX_BYTES + 1)).response_hex
    assert shown.endswith(f"({HEX_BYTES + 1} bytes)")


def test_a_trail_keeps_the_last_exchanges() -> None:
    trail = Trail()
    for number in range(KEPT_EXCHANGES + 5):
        trail.begin(18, number, b"")
    assert [each.version for each in trail.last(2)] == [KEPT_EXCHANGES + 3, KEPT_EXCHANGES + 4]
    assert len(trail.exchanges) == KEPT_EXCHANGES
