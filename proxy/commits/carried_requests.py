"""Commits between the proxies of a fleet: nothing of them stays at the edge."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.commits.services import FEATURE, CommitServices
from proxy.fleet.carried import NothingKept
from proxy.forwarding.routes import FramedHandler


class CarriedCommits:
    """See carried.CarriedRequests."""

    feature = FEATURE

    def __init__(self, services: CommitServices, handlers: Mapping[int, FramedHandler]) -> None:
        self._services = services
        self._handlers = handlers

    @property
    def handlers(self) -> Mapping[int, FramedHandler]:
        """See carried.CarriedRequests."""
        return self._handlers

    def knows(self, group_id: str) -> bool:
        """See carried.CarriedRequests."""
        return self._services.knows(group_id) is True

    def edge(self) -> NothingKept:
        """See carried.CarriedRequests."""
        return NothingKept()

    def link_ended(self, number: int) -> None:
        """See carried.CarriedRequests: nothing is read over links."""

    def links_changed(self) -> None:
        """See carried.CarriedRequests: whoever waits at the gate looks again."""
        self._services.gate.look()
