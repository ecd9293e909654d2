"""Checks of request bytes that select the requests for individual commits. All others pass in C
(`early_matches.ByKnownGroup`).

While the set of known groups is uncertain, every request is checked in full (`followed_groups`).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.dispatch.early_matches import (
    AnyOf,
    ByGroupId,
    ByKnownGroup,
    ContainsAny,
    EarlyMatch,
    EveryRequest,
)
from kafka_share_proxy.wire.definitions.api_key import ApiKey

TEXT_WORD = b"ic/"

WORDS: Mapping[int, tuple[bytes, ...]] = {
    ApiKey.OFFSET_COMMIT: (TEXT_WORD,),
    ApiKey.OFFSET_FETCH: (),
    ApiKey.TXN_OFFSET_COMMIT: (TEXT_WORD,),
    ApiKey.OFFSET_DELETE: (),
}
"""Words that select a request of one group. Others are decoded first."""


def may_be_individual(key: int, services: CommitServices) -> EarlyMatch:
    words = WORDS.get(key)
    if words is None:
        return EveryRequest()
    followed = services.followed
    by_group = ByGroupId(lambda name: services.knows(name) is not False, has_any=lambda: services.knows_any)
    exactly = AnyOf((ContainsAny(words), by_group)) if words else by_group
    return ByKnownGroup(exactly, (services.held.groups, followed.groups), (followed.uncertain,), words)
