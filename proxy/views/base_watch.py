"""Views follow their bases without anybody asking: partitions are added, and bases that were made anew are noticed.

Members of KIP-848 groups never ask for Metadata; the broker tells them of new partitions once the view has them. All
views that exist are looked at, whichever proxy made them, under the proxy's own identity. It needs DESCRIBE on the
bases and DESCRIBE, ALTER, DELETE and CREATE on topics `__view.*`; where it has not, each Metadata that names a view
does the same over its client's connection.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from proxy.brokers.own_client_connection import OwnPort, drive
from proxy.loop.interfaces import Notes
from proxy.loop.lasting_trouble import LastingTrouble
from proxy.views import state_records
from proxy.views.creation import SeenView, ViewCreation
from proxy.views.model.catalog import Binding
from proxy.wire.errors import ErrorCode, ProxyError

AT_ONCE = 200
"""Views in one question."""


class ViewWatch:
    """The task that watches the bases of views."""

    def __init__(self, creation: ViewCreation, own: OwnPort, interval_s: float, notes: Notes) -> None:
        self.blind = ""
        """Why the last look saw nothing, or not all; empty when it did."""
        self._creation = creation
        self._own = own
        self._interval_s = interval_s
        self._unwatched = LastingTrouble(notes, "views-not-watched", "views-watched")
        self._missed: dict[str, Binding] = {}
        """Views that were not there at the last look, and what they were tied to."""

    async def run(self) -> None:
        """Look every so often until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._own.run)
            while True:
                await trio.sleep(self._interval_s)
                await self.look()

    async def look(self) -> None:
        """Look once at every view there is."""
        catalog = self._creation.catalog
        known = {*catalog.bound, *(view.name.topic for view in catalog)}
        topics = sorted(known)
        self.blind = ""
        self._missed = {topic: tied for topic, tied in self._missed.items() if topic in known}
        for start in range(0, len(topics), AT_ONCE):
            await self._look_at(topics[start : start + AT_ONCE])
        if self.blind:
            self._unwatched.happened(self.blind)
        else:
            self._unwatched.ended()

    async def _look_at(self, topics: Sequence[str]) -> None:
        names, _ = self._creation.read(topics)
        try:
            sights = await drive(self._creation.look(self._own, names, create=False))
        except ProxyError as error:
            self.blind = str(error)
            return
        for topic, sight in sights.items():
            self._judge(topic, sight)

    def _judge(self, topic: str, sight: SeenView) -> None:
        if sight.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.blind = f"the proxy's own identity may not DESCRIBE {topic} or its base"
        elif sight.view is not None and sight.view.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._missing(topic)
        else:
            self._missed.pop(topic, None)

    def _missing(self, topic: str) -> None:
        """Somebody deleted it, or makes it anew: what it is tied to is only taken back when it stays away."""
        catalog = self._creation.catalog
        catalog.forget(topic)
        tied = catalog.binding(topic)
        if tied is not None and self._missed.get(topic) == tied:
            self._creation.store.store(state_records.binding_key(topic), None)
        elif tied is not None:
            self._missed[topic] = tied
