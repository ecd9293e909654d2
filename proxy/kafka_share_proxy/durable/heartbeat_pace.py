"""Pauses between the heartbeats of a member of the group of proxies (durable/README.md rule 50).

A member notices by a heartbeat that the group rebalances, so others wait for its pause. In a fleet that does not change
no other member waits, and most of the CPU of an idle worker would be heartbeats.
"""

from __future__ import annotations

from math import inf

import trio

from kafka_share_proxy.brokers.cluster_connection import InFlight
from kafka_share_proxy.brokers.repeated_request import RepeatedRequest

PER_SESSION = 4
"""Heartbeats in one session timeout if one proxy owns everything: no other member waits for its rejoin."""
PER_SESSION_WHILE_CHANGING = 24
PER_SESSION_OF_FLEET = 6
CHANGING_SESSIONS = 2
"""Session timeouts for which a fleet counts as changing. A member that ended unnoticed is missed after one."""
MOVING_PAUSE_S, MOVING_S = 0.03, 1.0
"""Seconds between heartbeats while partitions move between live members, and for how long."""


class HeartbeatPace:
    """Length of the present pause, by what the member knows of the group."""

    def __init__(self, session_s: float, *, in_fleet: bool) -> None:
        self._session_s = session_s
        self._in_fleet = in_fleet
        self._moves_until = self._changes_until = -inf
        """trio.current_time()."""
        self._is_over = trio.Event()
        self._repeated: RepeatedRequest | None = None
        """Heartbeats that the loop sends."""

    @property
    def pause_s(self) -> float:
        """Seconds until the next heartbeat."""
        now = trio.current_time()
        if not self._in_fleet:
            return self._session_s / PER_SESSION
        if now < self._moves_until:
            return MOVING_PAUSE_S
        return self._session_s / (PER_SESSION_WHILE_CHANGING if now < self._changes_until else PER_SESSION_OF_FLEET)

    @property
    def rejoining_pause_s(self) -> float:
        """Seconds between heartbeats while a JoinGroup is in progress."""
        return self._session_s / (PER_SESSION_WHILE_CHANGING if self._in_fleet else PER_SESSION)

    def changed(self, *, is_moving: bool) -> None:
        """Note a new assignment. `is_moving`: some partitions have no owner in it, so another one follows soon."""
        self._moves_until = trio.current_time() + MOVING_S if is_moving else -inf
        self._become_frequent()

    def expect_change(self) -> None:
        """End the pause, and be frequent for a while: a member rejoins, or may have ended."""
        self._become_frequent()
        self.end_pause()

    def _become_frequent(self) -> None:
        self._changes_until = trio.current_time() + CHANGING_SESSIONS * self._session_s

    async def wait(self, pause_s: float) -> None:
        """Wait this long, or until `end_pause`, which may have been called since the pause before."""
        with trio.move_on_after(pause_s):
            await self._is_over.wait()
        self._is_over = trio.Event()

    async def repeat(self, heartbeats: RepeatedRequest) -> InFlight | None:
        """Wait as `wait`, over all pauses in which nothing but expected responses is received."""
        if self._is_over.is_set():
            heartbeats.stop()
        self._repeated = heartbeats
        try:
            in_flight = await heartbeats.run(self.pause_s)
        finally:
            self._repeated = None
        if in_flight is None:  # otherwise the next heartbeat is not sent now
            self._is_over = trio.Event()
        return in_flight

    def end_pause(self) -> None:
        """Let the next heartbeat be sent now."""
        self._is_over.set()
        if self._repeated is not None:
            self._repeated.stop()
