"""Kafka's console consumer as a member of a group that reads a view.

It prints records, and what the client library logs of rebalances; `Console` turns both into the lines that
`view_member` writes. It commits by itself what it has printed. As other members it leaves its group when its input
ends: the tool looks at no input, so a child of its does.
"""

from __future__ import annotations

import re
import signal
import sys
from typing import Any

from tests.support.java_tools import command

LOGGER = "-Dorg.slf4j.simpleLogger"
LOGGED = [
    f"org.apache.kafka.clients.consumer.internals.{name}"
    for name in ("ConsumerRebalanceListenerInvoker", "ConsumerMembershipManager", "MembershipManagerImpl")
]
"""Loggers with which classic groups and those of KIP-848 (4.3, 3.9) report gained and lost partitions."""
ASSIGNORS = {"range": "RangeAssignor", "sticky": "StickyAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}
SETTINGS = {
    "auto.commit.interval.ms": "200",
    "fetch.max.wait.ms": "200",
    "metadata.max.age.ms": "1000",
}
CLASSIC = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "500"}
STOPPED = 128 + signal.SIGTERM
"""Exit status of a JVM that ended in good order on request."""

_RECORD = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t(.*?)\t(.+)")
_LOGGED = re.compile(r"(?:INFO|WARN|ERROR) org\.apache\.kafka\.|\t(?:Member|Assigned|Current|Added|Revoked)\b")
_GAINED = re.compile(r".*(?:Adding newly assigned partitions|Added partitions \(assigned - owned\)): (.*)")
_GAVE_UP = re.compile(r".*(?:Revoke|Revoking|Lost) previously assigned partitions (.*)")
_PARTITION = re.compile(r"-(\d+)(?=[,\]\s]|$)")


class Console:
    """Output of one console consumer, line by line.

    A record is printed in pieces, and another thread may log between two of them: whole lines, with their ends.
    """

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._partial_record = ""
        """The pieces of a record before what was logged."""

    def reported(self, line: str) -> list[list[Any]]:
        """Return the lines that `view_member` would have written."""
        line = line.removesuffix("\n")
        logged = _LOGGED.search(line)
        if logged is not None:
            self._partial_record += line[: logged.start()]
            return self._rebalance(line[logged.start() :])
        match = _RECORD.search(self._partial_record + line)
        if match is None:
            self._partial_record += line
            return []
        self._partial_record = ""
        partition, offset, key, value = match.groups()
        return [["record", int(partition), int(offset), key, value]]

    def _rebalance(self, line: str) -> list[list[Any]]:
        match = _GAINED.match(line) or _GAVE_UP.match(line)
        changed = {int(number) for number in _PARTITION.findall(match.group(1))} if match else set()
        if not changed:
            return []
        if _GAINED.match(line):
            self._held |= changed
            return [["assigned", sorted(self._held)]]
        self._held -= changed
        return [["revoked", sorted(changed)], ["assigned", sorted(self._held)]]


def command_of(release: str, bootstrap: str, group: str, topic: str, assignor: str = "") -> list[str]:
    """The command line of such a member. Assignors: range, sticky, cooperative-sticky; or consumer, for KIP-848."""
    settings = SETTINGS | ({"group.protocol": "consumer"} if assignor == "consumer" else CLASSIC)
    if assignor in ASSIGNORS:
        settings["partition.assignment.strategy"] = f"org.apache.kafka.clients.consumer.{ASSIGNORS[assignor]}"
    return until_input_ends(_line(release, bootstrap, topic, settings, "--group", group, "--from-beginning"))


def reader_of(release: str, bootstrap: str, topic: str, partition: int) -> list[str]:
    """The command line of one that is in no group and reads one partition from its beginning."""
    settings = SETTINGS | {"auto.offset.reset": "earliest"}
    return _line(release, bootstrap, topic, settings, "--partition", str(partition), "--offset", "earliest")


def _line(release: str, bootstrap: str, topic: str, settings: dict[str, str], *words: str) -> list[str]:
    old = release.startswith("3.")
    line = ["--bootstrap-server", bootstrap, "--topic", topic, *words]
    for name in ("partition", "offset", "key"):
        line += ["--property" if old else "--formatter-property", f"print.{name}=true"]
    for key, value in settings.items():
        line += ["--consumer-property" if old else "--command-property", f"{key}={value}"]
    line = command("consumer.ConsoleConsumer", *line, releases=(release,))
    at = line.index("-cp")  # logged where records are printed, so that the order shows
    logging = [f"{LOGGER}.logFile=System.out", f"{LOGGER}.showThreadName=false"]
    logging += [f"{LOGGER}.log.{name}=info" for name in LOGGED]
    return [*line[:at], *logging, *line[at:]]


def until_input_ends(line: list[str]) -> list[str]:
    """Run the same command, which ends when its input ends."""
    return [sys.executable, "-I", "-S", "-c", _WATCHED, *line]


_WATCHED = """
import os, signal, sys
parent = os.getpid()
if os.fork() == 0:
    for stream in (1, 2):
        os.close(stream)
    while os.read(0, 1024):
        pass
    if os.getppid() == parent:
        os.kill(parent, signal.SIGTERM)
    os._exit(0)
os.execv(sys.argv[1], sys.argv[1:])
"""
