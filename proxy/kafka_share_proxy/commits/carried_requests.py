"""Commits that are forwarded between the proxies of a fleet. The receiving edge proxy keeps no state of them."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_share_proxy.commits.services import FEATURE, CommitServices
from kafka_share_proxy.fleet.carried import NothingKept
from kafka_share_proxy.forwarding.dispatch.routes import FramedHandler


class CarriedCommits:
    """See carried.CarriedRequests."""

    feature = FEATURE

    def __init__(self, services: CommitServices, handlers: Mapping[int, FramedHandler]) -> None:
        self._services = services
        self._handlers = handlers

    @property
    def handlers(self) -> Mapping[int, FramedHandler]:
        return self._handlers

    def knows(self, group_id: str) -> bool:
        return self._services.knows(group_id) is True

    def edge(self) -> NothingKept:
        return NothingKept()

    def link_ended(self, number: int) -> None:
        """Do nothing: no records are read over links."""

    def links_changed(self) -> None:
        """Check again the requests that wait at the gate."""
        self._services.gate.wake()
