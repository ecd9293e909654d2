"""Members of a share group on the stock Java client, in explicit mode (`tests/clients/sharemember`)."""

from __future__ import annotations

import os
from pathlib import Path

from localkafka.children import Child
from localkafka.jars import class_path
from localkafka.java import QUICK_START, find_java

from tests.support.programs import built
from tests.support.settlements import Ledger

COMPILER, CLIENTS = "ecj-3.38.0", "4.3.0"


class ShareMember:
    """A process; what it says comes to the ledger with `listen`."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str, folder: Path) -> None:
        self.name = name
        self._log, self._heard, self._rest = folder / f"{name}.log", 0, ""
        logging = {"logFile": f"{folder / name}.client.log", "defaultLogLevel": "warn", "showDateTime": "true"}
        options = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in logging.items()]
        paths = os.pathsep.join([str(_compiled()), class_path(CLIENTS)])
        command = [find_java(), *QUICK_START, "-Xmx128m", *options, "-cp", paths, "ShareMember"]
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


def _compiled() -> Path:
    """The folder of the program, compiled."""
    arguments = ["-source", "17", "-target", "17", "-proc:none", "-cp", class_path(CLIENTS), "ShareMember.java"]
    compiler = [find_java(), "-jar", class_path(COMPILER), *arguments]
    return built("sharemember", compiler, "ShareMember.class")
