"""Members of a share group on the stock Java client, in explicit mode (`tests/clients/sharemember`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafka_share_proxy.localkafka.children import Child

from tests.support.java_programs import java_program
from tests.support.settlements import Ledger


class ShareMember:
    """A process; `listen` adds its output to the ledger."""

    def __init__(
        self, name: str, bootstrap: str, group: str, topic: str, folder: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings`: more of them, by Kafka's names."""
        self.name = name
        more = folder / f"{name}.properties"
        more.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in (settings or {}).items()))
        self._log, self._received, self._rest = folder / f"{name}.log", 0, ""
        logging = {"logFile": f"{folder / name}.client.log", "defaultLogLevel": "warn", "showDateTime": "true"}
        options = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in logging.items()]
        command = java_program("ShareMember", "4.3.0", "-Xmx128m", *options)
        self.child = Child([*command, bootstrap, group, topic, str(more)], self._log)

    def listen(self, ledger: Ledger) -> None:
        """Take what was said since the last time; raises ValueError for what no member says."""
        with self._log.open(encoding="utf-8") as log:
            log.seek(self._received)
            text = log.read()
            self._received = log.tell()
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            ledger.take(self.name, line)


def _escaped(value: str) -> str:
    """Escape as java.util.Properties requires."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
