"""Trial binding of every address that `serve` would listen on, for `check`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.loop import listeners
from kafka_share_proxy.wire.values import Address


class Listening(NamedTuple):
    """One listener that `serve` would open."""

    purpose: str
    """Description of the clients of this listener."""
    address: Address
    trouble: str = ""

    @property
    def obstacle(self) -> str:
        return f"cannot listen on {self.address} ({self.purpose}): {self.trouble}" if self.trouble else ""


def try_all(
    config: Config, brokers: Mapping[int, Address], bind: Callable[[str, int], list[socket.socket]] = listeners.bind
) -> tuple[Listening, ...]:
    """Bind all addresses at the same time, as `serve` would."""
    bound_sockets: list[socket.socket] = []
    listening = []
    try:
        for purpose, address in _addresses(config, brokers):
            trouble = ""
            try:
                bound_sockets += bind(address.host, address.port)
            except OSError as error:
                trouble = _reason(error)
            listening.append(Listening(purpose=purpose, address=address, trouble=trouble))
    finally:
        for sock in bound_sockets:
            sock.close()
    return tuple(listening)


def require(config: Config, bind: Callable[[str, int], list[socket.socket]]) -> None:
    """Report every port that cannot be bound, before one of them is opened. `bind`: see `listeners.bind`.

    Raises:
        OSError: the text names each address, its purpose, and why it cannot be opened.
    """
    tried = try_all(config, config.upstream.nodes, bind)
    if obstacles := [each.obstacle for each in tried if each.trouble]:
        raise OSError("; ".join(obstacles))


def mistakes(config: Config, listening: tuple[Listening, ...], brokers: Mapping[int, Address]) -> Iterator[str]:
    """Yield listeners that cannot be opened, and advertised addresses that bypass the proxy."""
    yield from filter(None, (each.obstacle for each in listening))
    meanings: dict[Address | None, str] = {config.bootstrap_address: "clients bootstrap from"}
    meanings |= {config.broker_addresses.of(node_id): f"broker {node_id} becomes" for node_id in sorted(brokers)}
    upstream = {*config.upstream.bootstrap, *brokers.values()}
    for own, meaning in meanings.items():
        if own in upstream:
            yield f"{meaning} {own}, which is a broker's own address: clients would bypass the proxy; choose another"


def _addresses(config: Config, brokers: Mapping[int, Address]) -> Iterator[tuple[str, Address]]:
    yield "bootstrap", config.bound
    for node_id in sorted(brokers) if config.exposure == "ports" else ():
        client_address = config.broker_addresses.of(node_id)
        if client_address is not None:
            yield f"broker {node_id}", Address(config.bound.host, client_address.port)
    if config.admin is not None:
        yield "admin", config.admin
    listen = config.cluster.peer.listen
    if config.cluster.mode == "fleet" and listen is not None:
        for number in range(config.worker_count):
            yield "other proxies", Address(listen.host, listen.port + number)


def _reason(error: OSError) -> str:
    """Leave out the address, which the caller reports."""
    if isinstance(error.__cause__, socket.gaierror) or error.errno is None or error.errno <= 0:
        return str(error.strerror or error).rpartition(": ")[2]
    return os.strerror(error.errno)
