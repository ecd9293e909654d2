"""Features of the cluster, as ApiVersions reports them (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

FEATURES_EPOCH = 1
"""Epoch of the finalized features. They never change."""


class FeatureLevel(NamedTuple):
    """Supported levels, and the finalized one."""

    lowest: int
    highest: int
    finalized: int


FEATURES: Mapping[str, FeatureLevel] = {
    "group.version": FeatureLevel(0, 1, 1),
    "share.version": FeatureLevel(0, 1, 1),
    "transaction.version": FeatureLevel(0, 2, 2),
}
"""metadata.version and kraft.version are left out, since there is no quorum."""
