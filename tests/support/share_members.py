"""Members of a share group on the stock Java client, in explicit mode (`tests/clients/sharemember`)."""

from __future__ import annotations

from pathlib import Path

from localkafka.children import Child

from tests.support.java_programs import java_program
from tests.support.settlements import Ledger


class ShareMember:
    """A process; what it says comes to the ledger with `listen`."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str, folder: Path) -> None:
        self.name = name
        self._log, self._heard, self._rest = folder / f"{name}.log", 0, ""
        logging = {"logFile": f"{folder / name}.client.log", "defaultLogLevel": "warn", "showDateTime": "true"}
        options = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in logging.items()]
        command = java_program("ShareMember", "4.3.0", "-Xmx128m", *options)
        self.child = Child([*command, bootstrap, group, topic], self._log)

    def listen(self, ledger: Ledger) -> None:
        """Take what was said since the last time; raises ValueError for what no member says."""
        with self._log.open(encoding="utf-8") as log:
            log.seek(self._heard)
            text = log.read()
            self._heard = log.tell()
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            ledger.take(self.name, line)
