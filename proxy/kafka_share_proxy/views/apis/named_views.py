"""Early matches of requests about views (`DeclaredApi.wants`)."""

from __future__ import annotations

from typing import NamedTuple

from kafka_share_proxy.forwarding.dispatch.early_matches import ELEMENTS_MAX, ContainsAny, ContainsNow, Matcher
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.model.names import PREFIX_BYTES, is_view
from kafka_share_proxy.wire.codec import prefixes
from kafka_share_proxy.wire.codec.prefixes import Unread
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError

SEARCHED_BYTES = 8 << 10
"""Maximum bytes of a request that is searched for ids of views. A longer one is decoded."""

NAMES_VIEW = ContainsAny((PREFIX_BYTES,))
"""Selects requests that contain the prefix of the names of views."""


def has_view_id(catalog: ViewCatalog) -> ContainsNow:
    """Select requests that contain the topic id of a view."""
    return ContainsNow(catalog.topic_ids, SEARCHED_BYTES)


class NamesUnknownView(NamedTuple):
    """Selects requests that name a view that is not in the catalog."""

    catalog: ViewCatalog

    def matcher(self, key: int, version: int) -> Matcher:
        try:
            read = prefixes.topic_names(key, version)
        except LocalProtocolError:
            return lambda _frame: False
        known = self.catalog.by_name

        def names_unknown_view(frame: memoryview) -> bool:
            data = bytes(frame)
            if PREFIX_BYTES not in data:
                return False
            try:
                topics = read(data, len(data), ELEMENTS_MAX)
            except RemoteProtocolError:
                return False
            return isinstance(topics, Unread) or any(is_view(name) and known(name) is None for name in topics or ())

        return names_unknown_view
