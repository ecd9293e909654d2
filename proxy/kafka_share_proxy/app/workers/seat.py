"""End of a worker: what its supervisor has assigned to it, and requests to it (app/README.md rules 10 to 16)."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from kafka_share_proxy.app.settings import passed_settings
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.hostports import parse_address
from kafka_share_proxy.app.workers import channel
from kafka_share_proxy.wire.values import Address

DESCRIPTOR = "_KAFKA_SHARE_PROXY_SUPERVISOR"
"""Environment variable with the number of the descriptor of the worker's end."""
RETIRE = signal.SIGUSR1
"""Signal to a worker whose ports others have taken: it closes connections one after the other, and ends."""
REQUEST_TIMEOUT_S = 5.0
"""Seconds that the supervisor may take for a response. It serves no clients, so it needs less than a millisecond."""


class Seat(NamedTuple):
    """Assignment of one worker among all workers of one supervisor."""

    number: int
    """Number that no other running worker has."""
    name: str
    """Name as a member of the group of proxies. In a fleet of several machines: the address that they dial."""
    protocol: str
    """Protocol name in the group of proxies; empty: as without workers."""
    secret: bytes | None
    """Secret of the links between workers. None: that of the fleet."""
    links: str
    """Unix socket at which this worker accepts the others."""
    paths: Mapping[str, str]
    """Unix socket of each possible worker by name."""
    peer_listen: Address | None
    """Address at which this worker accepts proxies of other machines."""
    is_successor: bool
    """True if it takes the place of a worker that still serves."""
    admin: str
    """Unix socket of this worker's admin listener, for its supervisor."""
    supervisor: SupervisorLink
    """Port to the supervisor."""


@dataclass(slots=True)
class SupervisorLink:
    """Requests to the supervisor. They block, for less than a millisecond."""

    end: socket.socket
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def listen(self, host: str, port: int, place: int | None = None) -> list[socket.socket]:
        """Return listening sockets, which stay open at the supervisor. Raises OSError with a reason.

        `place`: that of another worker.
        """
        response, sockets = self._request({"listen": [host, port, place]})
        if "error" in response:
            raise OSError(response["errno"], response["error"])
        for sock in sockets:
            sock.setblocking(False)
        return sockets

    def settings(self) -> Config:
        """Return the settings that workers should use now."""
        return passed_settings.decode(self._request({"settings": True})[0]["settings"])

    def seat(self) -> Seat:
        """Return the assignment of this worker."""
        values = self._request({"seat": True})[0]
        listen = values.pop("peer_listen")
        secret = values.pop("secret")
        return Seat(
            **values,
            secret=None if secret is None else bytes.fromhex(secret),
            peer_listen=None if listen is None else parse_address(listen),
            supervisor=self,
        )

    def report_ready(self) -> None:
        """Report that this worker accepts clients."""
        self._request({"ready": True})

    async def ended(self) -> None:
        """Wait until the supervisor has gone."""
        while True:
            await trio.lowlevel.wait_readable(self.end)
            with self._one_at_a_time:
                self.end.setblocking(False)
                try:
                    if not self.end.recv(1, socket.MSG_PEEK):
                        return
                except BlockingIOError:
                    continue  # the response of a request, which has read it
                except OSError:
                    return

    def _request(self, body: Mapping[str, object]) -> tuple[dict[str, Any], list[socket.socket]]:
        with self._one_at_a_time:
            self.end.settimeout(REQUEST_TIMEOUT_S)
            channel.send(self.end, body)
            received = channel.receive(self.end)
        if received is None:
            raise OSError("the supervisor of this worker has ended")
        return received


def supervisor() -> SupervisorLink | None:
    """Return the port to the supervisor that started this process. None if no supervisor did."""
    end = channel.inherited(DESCRIPTOR)
    return None if end is None else SupervisorLink(end)
