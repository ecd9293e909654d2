"""Fetch as the proxy asks it of brokers."""

from __future__ import annotations

import pytest

from proxy.forwarding.offered_versions import EffectiveVersions, Offer
from proxy.reading.upstream_fetch import FETCH, fetch_version


@pytest.mark.parametrize(("upstream", "asked"), [((4, 12), 12), ((4, 16), 16), ((4, 18), 17)])
def test_the_highest_version_of_use_is_asked(upstream: tuple[int, int], asked: int) -> None:
    """What every broker has, but none that adds nothing for a consumer."""
    versions = EffectiveVersions(Offer(serve_share=False))
    versions.learn(1, {FETCH: upstream})
    assert fetch_version(versions) == asked


def test_before_a_broker_has_answered_topics_are_named_by_id() -> None:
    """All supported brokers have that version."""
    assert fetch_version(EffectiveVersions(Offer(serve_share=False))) == 13
