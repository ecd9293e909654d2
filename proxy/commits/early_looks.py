"""Which requests individual commits want, told from their bytes; all others pass, in C (`early_looks.ByKnownGroup`).

Without `ic/` in it, and of a group that nobody knows, a request is none of ours. While it is not certain which groups
commit individually, every request is looked at (`followed_groups`).
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.commits.services import CommitServices
from proxy.forwarding.early_looks import AnyOf, ByGroupId, ByKnownGroup, ContainsAny, EarlyLook, EveryRequest
from proxy.wire.api_key import ApiKey

TEXT_WORD = b"ic/"
"""What every text of ranges begins with, those of later versions too."""

WORDS: Mapping[int, tuple[bytes, ...]] = {
    ApiKey.OFFSET_COMMIT: (TEXT_WORD,),
    ApiKey.OFFSET_FETCH: (),
    ApiKey.TXN_OFFSET_COMMIT: (TEXT_WORD,),
    ApiKey.OFFSET_DELETE: (),
}
"""API key -> words that a request may have, of the APIs whose requests name one group; others are decoded first."""


def wanted(key: int, services: CommitServices) -> EarlyLook:
    """Requests of an API that may be about a text, or about a group that is known."""
    words = WORDS.get(key)
    if words is None:
        return EveryRequest()
    followed = services.followed
    by_group = ByGroupId(lambda name: services.knows(name) is not False, has_any=lambda: services.knows_any)
    exactly = AnyOf((ContainsAny(words), by_group)) if words else by_group
    return ByKnownGroup(exactly, (services.held.groups, followed.groups), (followed.uncertain,), words)
