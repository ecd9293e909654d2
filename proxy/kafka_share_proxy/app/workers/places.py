"""Places that a supervisor assigns to its workers: names, Unix sockets, and addresses for other machines."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path

from kafka_share_proxy.app.settings.config import WORKERS_MAX, Config
from kafka_share_proxy.app.workers.channel import Body
from kafka_share_proxy.durable.ownership_rules import FLEET_PROTOCOL
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.wire.values import Address

NUMBERS = range(2 * WORKERS_MAX)
"""Numbers of workers. During a change there are two generations."""
SECRET_BYTES = 32
FOLDERS = ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR")
"""Environment variables that name a folder for sockets (systemd)."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the folder made in it is for this user only
"""Writable even in a container with a read-only root."""


class Places:
    """Folder for the Unix sockets of one supervisor, and what each worker gets."""

    def __init__(self) -> None:
        """Raises ConfigError if no folder is writable."""
        self._folder = Path(_new_folder())
        self._secret = secrets.token_hex(SECRET_BYTES)

    def remove(self) -> None:
        """Remove the folder with the sockets."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def admin(self, number: int) -> str:
        """Return the path of a worker's admin listener."""
        return str(self._folder / f"admin-{number}")

    def seat(self, config: Config, number: int, *, is_successor: bool = False) -> Body:
        """Return the fields of `seat.Seat` for one worker, as values of JSON."""
        listen = config.cluster.peer.listen if config.cluster.mode == "fleet" else None
        return {
            "number": number,
            "name": name_of(config, number),
            "protocol": "" if listen is not None else f"{FLEET_PROTOCOL}-{name_of(config, None)}",
            "secret": self._secret if listen is None else None,
            "links": self._links(number),
            "paths": {name_of(config, each): self._links(each) for each in NUMBERS},
            "peer_listen": None if listen is None else str(_moved(listen, number)),
            "is_successor": is_successor,
            "admin": self.admin(number),
        }

    def _links(self, number: int) -> str:
        return links(self._folder, number)


def links(folder: Path, number: int) -> str:
    """Return the path at which a worker accepts the others."""
    return str(folder / f"links-{number}")


def name_of(config: Config, number: int | None) -> str:
    """Return the name of a worker: the address that other machines dial, or one that only its siblings know."""
    if config.peer_address is not None and number is not None:
        return str(_moved(config.peer_address, number))
    address = Address(config.advertised_host, config.bound.port)
    return str(address) if number is None else f"{address}/{number}"


def _moved(address: Address, number: int) -> Address:
    return Address(address.host, address.port + number)


def _new_folder() -> str:
    tried = [os.environ[name].partition(":")[0] for name in FOLDERS if name in os.environ]
    for folder in (*tried, *_default_folders()):
        try:
            return tempfile.mkdtemp(prefix="ksp-", dir=folder)
        except OSError:
            continue
    raise ConfigError("workers: no folder is writable for the sockets between workers; set TMPDIR")


def _default_folders() -> list[str]:
    try:
        return [tempfile.gettempdir(), SHARED_MEMORY]
    except OSError:
        return [SHARED_MEMORY]
