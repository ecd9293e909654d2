"""Declaration of an API that the broker serves."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi, RewritingParts
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook, Remembered, ResponseCache
from kafka_share_proxy.forwarding.rewriting.address_rewriting import drop_node_endpoints
from kafka_share_proxy.wire.errors import LocalProtocolError

BOOK = AddressBook(20000, "h", lambda *_: True)
PARTS = RewritingParts(BOOK, EffectiveVersions(Offer()), Limits(), ResponseCache(BOOK))
ACKNOWLEDGE, HEARTBEAT = 79, 12
"""API whose responses contain addresses, and one without."""


def test_what_is_not_declared_passes_if_it_carries_no_address() -> None:
    """Else the proxy does not start."""
    assert ForwardedApi(key=HEARTBEAT).rewriter(4, PARTS) is None
    with pytest.raises(LocalProtocolError, match="ShareAcknowledge v1 carries addresses"):
        ForwardedApi(key=ACKNOWLEDGE).rewriter(1, PARTS)


def test_a_repair_makes_a_rewriter_and_a_reason_makes_none() -> None:
    assert ForwardedApi(key=ACKNOWLEDGE, repair=drop_node_endpoints).rewriter(1, PARTS) is not None
    assert ForwardedApi(key=ACKNOWLEDGE, waived="the addresses are not of brokers").rewriter(1, PARTS) is None


def test_responses_that_repeat_are_remembered() -> None:
    """All routes share one cache and its limits."""
    api = ForwardedApi(key=ACKNOWLEDGE, repair=drop_node_endpoints, responses_repeat=True)
    assert isinstance(api.rewriter(1, PARTS), Remembered)


def test_a_declared_rewriter_replaces_the_repair() -> None:
    api = ForwardedApi(key=ACKNOWLEDGE, repair=drop_node_endpoints, rewrite=lambda _version, _parts: None)
    assert api.rewriter(1, PARTS) is None
