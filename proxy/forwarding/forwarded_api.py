"""One API whose requests go to the broker: what is done to them, and to its answers. Declared in `forwarding/apis/`.

What is not declared passes as the bytes come, unless the message definitions have addresses in its answers: then the
proxy does not start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from proxy.forwarding.address_book import AddressBook, AnswerCache
from proxy.forwarding.address_rewriting import Repair, Special, rewriter
from proxy.forwarding.offered_versions import EffectiveVersions
from proxy.forwarding.routes import Amend, Kind, Rewrite
from proxy.wire import endpoints, registry
from proxy.wire.errors import LocalProtocolError
from proxy.wire.values import Limits


class RewritingParts(NamedTuple):
    """What rewriters and amendments are made of."""

    book: AddressBook
    versions: EffectiveVersions
    limits: Limits
    cache: AnswerCache


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedApi:
    """One API that the broker answers."""

    key: int
    kind: Kind | None = None
    """Where the data plane has to tell its requests from others; None: ANSWER if answers are rewritten, or FORWARD."""
    repair: Repair | None = None
    """Answers carry addresses of brokers: what is done when one of those has no place here."""
    special: Callable[[int], Special] | None = None
    """For a version, which answers are repaired although all addresses have a place here."""
    waived: str = ""
    """Answers carry addresses that must stay as they are: the reason."""
    rewrite: Callable[[int, RewritingParts], Rewrite | None] | None = None
    """For a version, what is done to answers, in place of what `repair` makes."""
    answers_repeat: bool = False
    """Answers come again byte for byte, so that rewriting them is remembered."""
    amend: Callable[[int, RewritingParts], Amend] | None = None
    """For a version, what requests are shown to before they go on (`routes.Route.amend`)."""
    requests_repeat: bool = False
    """See `routes.Route.repeats`."""

    def rewriter(self, version: int, parts: RewritingParts) -> Rewrite | None:
        """What is done to answers of this version; None: they pass as they come.

        Raises:
            LocalProtocolError: they carry addresses, and nobody rewrites or waives them.
        """
        rewrite = self._rewrite(version, parts)
        return parts.cache.through(rewrite) if rewrite is not None and self.answers_repeat else rewrite

    def _rewrite(self, version: int, parts: RewritingParts) -> Rewrite | None:
        if self.rewrite is not None:
            return self.rewrite(version, parts)
        if endpoints.locator(self.key, version) is None or self.waived:
            return None
        if self.repair is None:
            name = registry.API_KEYS[self.key]
            raise LocalProtocolError(f"{name} v{version} carries addresses, and nobody rewrites them")
        special = None if self.special is None else self.special(version)
        return rewriter(self.key, version, parts.book, self.repair, special)
