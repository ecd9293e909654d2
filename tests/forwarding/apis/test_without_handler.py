"""Forwarded APIs of which a declaration says all."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding.apis.without_handler import APIS
from kafka_share_proxy.forwarding.dispatch.forwarded_api import RewritingParts
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer, client_facing
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook, ResponseCache
from kafka_share_proxy.forwarding.rewriting.address_rewriting import ProduceRewriter

BOOK = AddressBook(20000, "h", lambda *_: True)
PARTS = RewritingParts(BOOK, EffectiveVersions(Offer()), Limits(), ResponseCache(BOOK))


def test_each_says_one_thing_about_an_api_of_clients() -> None:
    """A kind, a repair, or a reason to leave addresses as they are."""
    assert {api.key for api in APIS} <= client_facing()
    assert all(api.kind or api.repair or api.waived for api in APIS)


@pytest.mark.parametrize(("version", "carries"), [(3, False), (9, False), (10, True), (13, True)])
def test_produce_is_rewritten_from_the_version_on_that_names_leaders(version: int, carries: bool) -> None:
    """The walk in C recognises the class."""
    produce = next(api for api in APIS if api.key == 0)
    rewrite = produce.rewriter(version, PARTS)
    assert isinstance(rewrite, ProduceRewriter) is carries
    assert (rewrite is None) is not carries
