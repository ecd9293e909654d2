"""ApiVersions of a node (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

VERSIONS = (0, 4)
"""Offered versions of ApiVersions."""

OWN: Mapping[int, tuple[int, int]] = {
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: VERSIONS,
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}
"""Versions by key of the APIs that connections serve themselves."""

Feature = tuple[int, int, int]
"""Lowest and highest supported level, and the finalized one."""

FEATURES: Mapping[str, Feature] = {
    "group.version": (0, 1, 1),
    "share.version": (0, 1, 1),
    "transaction.version": (0, 2, 1),
}


def response(version: int, offered: Mapping[int, tuple[int, int]]) -> messages.ApiVersionsResponse:
    """Return the offered versions, and the features from version 3 on."""
    made = messages.ApiVersionsResponse(api_keys=list(_entries(offered.items())))
    if version >= 3:
        kinds = messages.ApiVersionsResponse
        made.finalized_features_epoch = 1
        # Lowest level 0 exists since version 4 (KIP-584: clients before it refuse 0).
        shown = {name: levels for name, levels in FEATURES.items() if version >= 4 or levels[0] > 0}
        made.supported_features = [
            kinds.SupportedFeatureKey(name=name, min_version=levels[0], max_version=levels[1])
            for name, levels in shown.items()
        ]
        made.finalized_features = [
            kinds.FinalizedFeatureKey(name=name, min_version_level=levels[2], max_version_level=levels[2])
            for name, levels in FEATURES.items()
        ]
    return made


def unsupported() -> messages.ApiVersionsResponse:
    """Return the response, in version 0, to a version that is not offered (KIP-511)."""
    own = [(int(ApiKey.API_VERSIONS), VERSIONS)]
    return messages.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=list(_entries(own)))


def _entries(offered: Iterable[tuple[int, tuple[int, int]]]) -> Iterable[messages.ApiVersionsResponse.ApiVersion]:
    for key, (lowest, highest) in sorted(offered):
        yield messages.ApiVersionsResponse.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
