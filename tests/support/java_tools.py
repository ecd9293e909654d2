"""Kafka's own command-line tools, from the released jars."""

from __future__ import annotations

from pathlib import Path

from localkafka.children import Child
from localkafka.jars import class_path
from localkafka.java import QUICK_START, find_java

from tests.support.programs import output_of

TOOLS = "org.apache.kafka.tools"
NEWEST = ("clients-4.4.0", "4.3.0")
"""The newest clients under the tools of the release before: of 4.4.0 there are only the clients."""
RUN_S = 60


def command(tool: str, *arguments: str, releases: tuple[str, ...] = ("4.3.0",)) -> list[str]:
    """The command line of a tool ("TopicCommand", or with its package); the first release that has a class gives it."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    name = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
    return [find_java(), *QUICK_START, "-Xmx256m", quiet, "-cp", class_path(*releases), name, *arguments]


def tool(name: str, *arguments: str, releases: tuple[str, ...] = ("4.3.0",), text: str | None = None) -> str:
    """What a tool prints; it must end with status 0."""
    return output_of(command(name, *arguments, releases=releases), RUN_S, text)


def start(name: str, log: Path, *arguments: str) -> Child:
    """A tool that runs until it is stopped; its output goes to the log."""
    return Child(command(name, *arguments), log)
