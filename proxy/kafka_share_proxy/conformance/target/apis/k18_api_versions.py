"""ApiVersions: the offered APIs and features (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
SOFTWARE_SINCE = 3

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


async def handle(call: TargetCall[messages.ApiVersionsRequest]) -> messages.ApiVersionsResponse:
    """Return the offered versions."""
    if call.version >= SOFTWARE_SINCE:
        name, version = call.request.client_software_name, call.request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            return messages.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.peer.software = (name, version)
    return offered_versions(call.cluster)


def offered_versions(cluster: TargetCluster, error: ErrorCode = ErrorCode.NONE) -> messages.ApiVersionsResponse:
    """Return the response. A request of an unknown version gets it in version 0 with UNSUPPORTED_VERSION (KIP-511)."""
    message = messages.ApiVersionsResponse
    return message(
        error_code=error,
        api_keys=[
            message.ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in cluster.offered.items()
        ],
        supported_features=[
            message.SupportedFeatureKey(name=name, min_version=level.lowest, max_version=level.highest)
            for name, level in FEATURES.items()
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            message.FinalizedFeatureKey(name=name, min_version_level=level.finalized, max_version_level=level.finalized)
            for name, level in FEATURES.items()
        ],
    )
