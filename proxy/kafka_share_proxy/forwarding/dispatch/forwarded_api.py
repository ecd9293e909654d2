"""Declaration of an API that the broker serves: changes to its requests and responses. See `forwarding/apis/`.

APIs without a declaration are forwarded as they arrive. The proxy does not start if their responses contain addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions
from kafka_share_proxy.forwarding.dispatch.routes import Amend, Kind, Rewrite
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook, ResponseCache
from kafka_share_proxy.forwarding.rewriting.address_rewriting import Repair, Special, rewriter
from kafka_share_proxy.wire.definitions import endpoints, registry
from kafka_share_proxy.wire.errors import LocalProtocolError


class RewritingParts(NamedTuple):
    """Objects from which rewriters and amendments are built."""

    book: AddressBook
    versions: EffectiveVersions
    limits: Limits
    cache: ResponseCache


class ForwardedApi(NamedTuple):
    """API that the broker serves."""

    key: int
    kind: Kind | None = None
    """Kind, if the data plane has to distinguish its requests. None: RESPONSE with a rewriter, otherwise FORWARD."""
    repair: Repair | None = None
    """Function for responses with a broker that has no address here."""
    special: Callable[[int], Special] | None = None
    """Function from a version to the predicate for responses to repair even if all brokers have addresses here."""
    waived: str = ""
    """Reason why addresses in responses stay as they are."""
    rewrite: Callable[[int, RewritingParts], Rewrite | None] | None = None
    """Function from a version to a rewriter that replaces the one made from `repair`."""
    responses_repeat: bool = False
    """True if responses repeat byte for byte. Their rewritten form is then cached."""
    amend: Callable[[int, RewritingParts], Amend] | None = None
    """Function from a version to the inspection of requests before they are forwarded (`routes.Route.amend`)."""
    requests_repeat: bool = False
    """See `routes.Route.repeats`."""

    def rewriter(self, version: int, parts: RewritingParts) -> Rewrite | None:
        """Return the rewriter of responses of this version. None to forward them as they arrive.

        Raises LocalProtocolError if they carry addresses that are neither rewritten nor waived.
        """
        rewrite = self._rewrite(version, parts)
        return parts.cache.through(rewrite) if rewrite is not None and self.responses_repeat else rewrite

    def _rewrite(self, version: int, parts: RewritingParts) -> Rewrite | None:
        if self.rewrite is not None:
            return self.rewrite(version, parts)
        if endpoints.locator(self.key, version) is None or self.waived:
            return None
        if self.repair is None:
            name = registry.API_KEYS[self.key]
            raise LocalProtocolError(f"{name} v{version} carries addresses that are neither rewritten nor waived")
        special = None if self.special is None else self.special(version)
        return rewriter(self.key, version, parts.book, self.repair, special)
