"""Kafka's own command-line tools, from the released jars; their classes come from an archive."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.class_archive import archive_options
from kafka_share_proxy.localkafka.jars import class_path
from kafka_share_proxy.localkafka.java import QUICK_START, find_java

from tests.support.java_programs import QUIET
from tests.support.programs import output_of

TOOLS = "org.apache.kafka.tools"
NEWEST = ("clients-4.4.0", "4.3.0")
"""The newest clients under the tools of the release before: of 4.4.0 there are only the clients."""
RUN_S = 180


def class_of(tool: str) -> str:
    """The class of a tool ("TopicCommand", or with its package)."""
    return tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"


def command(tool: str, *arguments: str, releases: tuple[str, ...] = ("4.3.0",)) -> list[str]:
    """The command line of a tool; the first release that has a class gives it."""
    java, jars = find_java(), class_path(*releases)
    return [java, *QUICK_START, *_archived(java, jars), "-Xmx256m", QUIET, "-cp", jars, class_of(tool), *arguments]


@cache
def _archived(java: str, jars: str) -> tuple[str, ...]:
    """Return the options to use the archive of the classes that a tool loads when it connects to a closed port."""
    asking = ["--bootstrap-server", "127.0.0.1:1", "--list", "--timeout", "100"]

    def make(writing: str) -> int:
        done = subprocess.run(
            [java, *QUICK_START, "-Xlog:disable", writing, "-cp", jars,
             f"{TOOLS}.consumer.group.ConsumerGroupCommand", *asking],
            capture_output=True, timeout=RUN_S, check=False,
        )  # fmt: skip
        return done.returncode

    return archive_options(java, jars, "tool", make)


def tool(name: str, *arguments: str, releases: tuple[str, ...] = ("4.3.0",), text: str | None = None) -> str:
    """Return what a tool prints; it must end with status 0."""
    return output_of(command(name, *arguments, releases=releases), RUN_S, text)


def start(name: str, log: Path, *arguments: str) -> Child:
    """A tool that runs until it is stopped; its output goes to the log."""
    return Child(command(name, *arguments), log)
