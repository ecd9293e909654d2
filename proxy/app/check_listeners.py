"""Every address that `serve` would listen on, tried as it would bind them: what `check` says of its own side."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proxy.app.config import Config
from proxy.app.hostports import PORT_MAX
from proxy.loop import listeners
from proxy.wire.values import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """One listener that `serve` would open."""

    purpose: str
    """Who dials it, in words."""
    address: Address
    trouble: str = ""
    """Why it cannot be opened; empty where it can."""


def try_all(config: Config, brokers: Mapping[int, Address]) -> tuple[Listening, ...]:
    """Bind all of them at the same time, as they would be, and let go of them again."""
    held: list[socket.socket] = []
    found = []
    try:
        for purpose, address in _wanted(config, brokers):
            trouble = ""
            try:
                held += listeners.bind(address.host, address.port)
            except OSError as error:
                trouble = _reason(error)
            found.append(Listening(purpose=purpose, address=address, trouble=trouble))
    finally:
        for sock in held:
            sock.close()
    return tuple(found)


def mistakes(config: Config, found: tuple[Listening, ...], brokers: Mapping[int, Address]) -> Iterator[str]:
    """A sentence for every listener that would not open, and for every address that would lead past the proxy."""
    for each in found:
        if each.trouble:
            yield f"cannot listen on {each.address} ({each.purpose}): {each.trouble}"
    told = {config.bound.port: "clients bootstrap from"}
    told |= {config.first_broker_port + node_id: f"broker {node_id} becomes" for node_id in sorted(brokers)}
    upstream = {*config.upstream.bootstrap, *brokers.values()}
    for port, what in told.items():
        ours = Address(config.advertised_host, port)
        if ours in upstream:
            yield f"{what} {ours}, which is a broker's own address: clients would go past the proxy; choose another"


def _wanted(config: Config, brokers: Mapping[int, Address]) -> Iterator[tuple[str, Address]]:
    yield "bootstrap", config.bound
    for node_id in sorted(brokers):
        if config.first_broker_port + node_id <= PORT_MAX:
            yield f"broker {node_id}", Address(config.bound.host, config.first_broker_port + node_id)
    if config.admin is not None:
        yield "admin", config.admin
    if config.cluster.mode == "fleet" and config.cluster.peer.listen is not None:
        yield "other proxies", config.cluster.peer.listen


def _reason(error: OSError) -> str:
    """`listeners.bind` names the address as well, which is told already."""
    if isinstance(error.__cause__, socket.gaierror) or error.errno is None or error.errno <= 0:
        return str(error.strerror or error).rpartition(": ")[2]
    return os.strerror(error.errno)
