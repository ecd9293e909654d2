"""Periodic check of all views against their bases, independent of requests: new partitions and recreated bases.

Rule: views/README.md 17. The proxy's identity needs DESCRIBE on the bases and DESCRIBE, ALTER, DELETE and CREATE on
topics `__view.*`. Without these rights, each Metadata request that names a view does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from kafka_share_proxy.brokers.cluster_client_connection import ClusterClientConnection, drive
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.creation import Missing, ViewCreation, ViewOutcome
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

VIEWS_PER_REQUEST = 200
"""Maximum number of views in one Metadata request."""


class ViewWatch:
    """Task that watches the bases of views."""

    def __init__(self, creation: ViewCreation, own: ClusterClientConnection, interval_s: float, notes: Notes) -> None:
        self.trouble = ""
        """Reason why the last check could not see all views, or empty."""
        self._creation = creation
        self._own = own
        self._interval_s = interval_s
        self._unwatched = LastingTrouble(notes, "views-not-watched", "views-watched")
        self._missing_before: dict[str, Binding] = {}
        """Bindings of views that were missing in the last check."""

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._own.run)
            while True:
                await trio.sleep(self._interval_s)
                await self.check_all()

    async def check_all(self) -> None:
        """Check all views once."""
        catalog = self._creation.catalog
        known = {*catalog.bound, *(view.name.topic for view in catalog)}
        topics = sorted(known)
        self.trouble = ""
        self._missing_before = {topic: binding for topic, binding in self._missing_before.items() if topic in known}
        for start in range(0, len(topics), VIEWS_PER_REQUEST):
            await self._check(topics[start : start + VIEWS_PER_REQUEST])
        if self.trouble:
            self._unwatched.happened(self.trouble)
        else:
            self._unwatched.ended()

    async def _check(self, topics: Sequence[str]) -> None:
        names, _ = await drive(self._creation.parse_names(topics))
        try:
            outcomes = await drive(self._creation.prepare(self._own, names, missing=Missing.LEAVE))
        except ProxyError as error:
            self.trouble = str(error)
            return
        for topic, outcome in outcomes.items():
            self._note_outcome(topic, outcome)

    def _note_outcome(self, topic: str, outcome: ViewOutcome) -> None:
        if outcome.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.trouble = f"the proxy's own identity may not DESCRIBE {topic} or its base"
        elif outcome.topic_entry is not None and outcome.topic_entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._note_missing(topic)
        else:
            self._missing_before.pop(topic, None)

    def _note_missing(self, topic: str) -> None:
        """Delete the binding if the view was also missing in the last check."""
        catalog = self._creation.catalog
        catalog.forget(topic)
        binding = catalog.binding(topic)
        if binding is not None and self._missing_before.get(topic) == binding:
            self._creation.store.store(state_records.binding_key(topic), None)
        elif binding is not None:
            self._missing_before[topic] = binding
