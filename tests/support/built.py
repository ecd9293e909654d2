"""Features put together as `app/` does."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_share_proxy.app.serving import features
from kafka_share_proxy.feature.feature import Feature, Probe, Stage
from kafka_share_proxy.forwarding.dispatch.declared_api import Served


def in_stages(*built: Feature, groups: Mapping[int, Served] | None = None) -> dict[int, Served]:
    """Return the handlers of these features, and of share groups."""
    shares = Feature(probe=Probe(path="groups"), apis={Stage.GROUPS: groups or {}})
    return features.handlers((*built, shares))
