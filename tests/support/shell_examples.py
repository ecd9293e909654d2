"""Shell examples of the documents as command lines of this machine: Kafka's tools of 4.3.0, and our own command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping

from tests.support.java_tools import command

TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "ConsoleProducer",
    "kafka-console-share-consumer.sh": "consumer.ConsoleShareConsumer",
    "kafka-consumer-groups.sh": "consumer.group.ConsumerGroupCommand",
    "kafka-share-groups.sh": "consumer.group.ShareGroupCommand",
    "kafka-topics.sh": "TopicCommand",
}
"""Script of a Kafka release -> class that it runs."""


def commands(text: str, own: Mapping[str, str]) -> list[list[str]]:
    """Return the words of each command of an example, in which names are replaced by the test's own.

    Raises AssertionError for a name that the example does not have.
    """
    for name, by in own.items():
        assert name in text, name
        text = text.replace(name, by)
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def runnable(words: list[str]) -> list[str]:
    """Return the command line that runs here."""
    if words[0] == "kafka-share-proxy":
        return [sys.executable, "-m", "kafka_share_proxy", *words[1:]]
    return command(TOOLS[words[0]], *words[1:])
