"""Reload of settings, certificates and authorities in a running proxy.

A reload reads all settings and files again before it changes anything, so a mistake changes nothing. It is requested by
SIGHUP, by the admin listener, and by changed TLS files (`watch`), whose names may be links that are replaced, as
Kubernetes does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from kafka_share_proxy.app.settings import live_settings
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.live_settings import Reloaded
from kafka_share_proxy.app.settings.tls_contexts import TlsContexts
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.loop.interfaces import Notes

WATCH_S = 0.5
"""Seconds between two looks at the files. A change is applied once two looks agree: a pair of files is written one by
one.
"""
Signature = tuple[int, int, int, int] | None
"""Device, inode, size and time of change (ns) of a file. None if it cannot be read."""


class Reloading:
    """The settings in force, and how they are read again."""

    def __init__(
        self,
        read: Callable[[], Config],
        config: Config,
        tls: TlsContexts,
        apply: Callable[[Config, Sequence[str]], None],
        notes: Notes,
    ) -> None:
        """`read` returns all settings, or raises ConfigError. `apply` changes what depends on these settings."""
        self._read = read
        self._config = config
        self._tls = tls
        self._apply = apply
        self._notes = notes
        self._one_at_a_time = trio.Lock()
        self._reloaded = trio.Event()
        """Set by the next reload."""

    async def reload(self, reason: str) -> Reloaded:
        """Apply what is written now.

        Raises:
            ConfigError: a setting or a file is invalid. Nothing was changed.
        """
        async with self._one_at_a_time:
            before = self._config
            return await live_settings.reload(
                before,
                self._read,
                lambda name, config: live_settings.is_live(name, before, config),
                self._take,
                self._notes,
                reason,
            )

    async def _take(self, config: Config, names: Sequence[str], tls: TlsContexts) -> None:
        self._config = config
        self._tls.take(tls)
        self._apply(config, names)
        self._reloaded.set()
        self._reloaded = trio.Event()

    async def try_reload(self, reason: str) -> None:
        """Reload. A mistake is logged only."""
        try:
            await self.reload(reason)
        except ConfigError:
            return

    async def watch(self) -> None:
        """Reload whenever a TLS file changes, until cancelled."""
        applied: dict[str, Signature] = {}
        latest = applied
        while True:
            while not latest:  # an idle proxy without TLS has nothing to look at
                reloaded = self._reloaded
                applied = latest = await self._signatures()
                if not latest:
                    await reloaded.wait()
            await trio.sleep(WATCH_S)
            before, latest = latest, await self._signatures()
            if latest == before and latest != applied:
                applied = latest
                await self.try_reload("a changed file")

    async def _signatures(self) -> dict[str, Signature]:
        files = live_settings.watched_files(self._config)
        return await trio.to_thread.run_sync(_signatures, files) if files else {}


def _signatures(files: Sequence[str]) -> dict[str, Signature]:
    return {file: _signature(file) for file in files}


def _signature(file: str) -> Signature:
    try:
        status = Path(file).stat()  # of the target of a link
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
