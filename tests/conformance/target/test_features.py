"""Features of the cluster."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.features import FEATURES


def test_finalized_levels_are_supported() -> None:
    assert all(each.lowest <= each.finalized <= each.highest for each in FEATURES.values())
