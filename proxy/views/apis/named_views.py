"""Which requests may be about views, told from their bytes: `DeclaredApi.wants`."""

from __future__ import annotations

from proxy.forwarding.early_looks import ContainsAny, ContainsNow
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import PREFIX_BYTES

SEARCHED_BYTES = 8 << 10
"""A longer request is not searched for the id of each view: it is read."""

NAMES_VIEW = ContainsAny((PREFIX_BYTES,))
"""Requests in which the name of a view may stand."""


def has_view_id(catalog: ViewCatalog) -> ContainsNow:
    """Requests in which the topic id of a known view may stand: it is searched for each of them."""
    return ContainsNow(catalog.topic_ids, SEARCHED_BYTES)
