"""Links whose other side has not yet proven that it belongs to the fleet (fleet/README.md rule 5).

A member proves itself within one round trip. If there is no room for another link, the oldest of the host with most
links is closed: members connect from other hosts than most strangers, and on the same host a member is faster than
`UNPROVEN_MAX` newcomers. Members are counted separately, so that strangers cannot use up their limit.
"""

from __future__ import annotations

from collections import Counter

from kafka_share_proxy.fleet.peer_link import PeerLink

UNPROVEN_MAX = 128
"""Maximum number of unproven links."""


class UnprovenLinks:
    """Unproven links in the order of their arrival."""

    def __init__(self) -> None:
        self._hosts: dict[PeerLink, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, link: PeerLink, host: str) -> None:
        self._hosts[link] = host
        self._counts[host] += 1

    def remove(self, link: PeerLink) -> None:
        host = self._hosts.pop(link, None)
        if host is not None:
            self._counts[host] -= 1
            if not self._counts[host]:
                del self._counts[host]

    def link_to_close(self, host: str) -> PeerLink | None:
        """Return the link to close before another one is accepted, or None if there is room."""
        if len(self._hosts) < UNPROVEN_MAX:
            return None
        most = max(self._counts.values())
        busiest = host if self._counts[host] == most else next(h for h, count in self._counts.items() if count == most)
        return next(link for link, its_host in self._hosts.items() if its_host == busiest)

    def links(self) -> list[PeerLink]:
        return list(self._hosts)
