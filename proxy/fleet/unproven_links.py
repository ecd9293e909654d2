"""Links of whoever has not proven yet to belong to the fleet: so many that a member always finds room.

Theory of operation. A link counts here from when it is accepted until its other side has proven that it knows the
secret, which takes a member one round trip. Where there is no room for one more, the oldest of the host that has the
most ends: members come from other hosts than most strangers, and on the same host a member is faster than
`UNPROVEN_MAX` newcomers. Members are counted apart from strangers, so that these cannot take their places.
"""

from __future__ import annotations

from collections import Counter

from proxy.fleet.peer_link import PeerLink

UNPROVEN_MAX = 128
"""Links that have proven nothing; one more ends another."""


class Strangers:
    """In the order in which they came."""

    def __init__(self) -> None:
        self._hosts: dict[PeerLink, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, link: PeerLink, host: str) -> None:
        """Keep a link that has not proven yet who it is."""
        self._hosts[link] = host
        self._counts[host] += 1

    def remove(self, link: PeerLink) -> None:
        """It has proven itself, or ended; harmless twice."""
        host = self._hosts.pop(link, None)
        if host is not None:
            self._counts[host] -= 1
            if not self._counts[host]:
                del self._counts[host]

    def in_the_way(self, host: str) -> PeerLink | None:
        """The link that has to end before one of this host is added; None where there is room."""
        if len(self._hosts) < UNPROVEN_MAX:
            return None
        most = max(self._counts.values())
        busiest = host if self._counts[host] == most else next(h for h, n in self._counts.items() if n == most)
        return next(link for link, whose in self._hosts.items() if whose == busiest)

    def links(self) -> list[PeerLink]:
        """All links that are kept."""
        return list(self._hosts)
