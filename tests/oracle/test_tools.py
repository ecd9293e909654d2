"""Kafka's administration tools print against the proxy in front of 3.9.1 what they print against native 4.3.0.

One script plays in both worlds at the same time; the member of the group keeps its heartbeats while a tool runs.
"""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from tests.oracle.tools import CONFIGS, GROUPS, SHARE_GROUPS, printed
from tests.support.tool_shell import ToolShell
from tests.support.worlds import ACCEPT, RELEASE, Member, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1200)]

PREFIX = "tools"
GROUP, OTHER, TOPIC = f"{PREFIX}-g", f"{PREFIX}-other", f"{PREFIX}-t"
HEARTBEAT_S = 2.0

EPOCHS = re.compile(r"(?<=Stable )\d+ \d+(?= \d)|(?<=\d )\d+(?= tools-t:0)")
"""Group, assignment and member epoch: the proxy counts no step for initialising a partition."""

Printed = dict[str, list[str]]


class Script:
    """One world: the tools' output, step by step."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.world = World(name, bootstrap, PREFIX)
        self.bootstrap = bootstrap
        self.output: Printed = {}
        self.member: Member | None = None
        self._shell = ToolShell()
        self._pool = ThreadPoolExecutor(1)

    def close(self) -> None:
        with self._shell:
            self._pool.shutdown()
        self.world.close()

    def run(self, tool: str, *arguments: str) -> None:
        name = f"{len(self.output):02} {tool.rpartition('.')[2]} {' '.join(arguments)}"
        running: Future[list[str]] = self._pool.submit(printed, self._shell, self.bootstrap, tool, arguments, PREFIX)
        while self.member is not None and not wait([running], HEARTBEAT_S).done:
            self.member.heartbeat(silent=True)
        self.output[name] = running.result()

    def share(self, *arguments: str) -> None:
        self.run(SHARE_GROUPS, *arguments)

    def configs(self, *arguments: str) -> None:
        self.run(CONFIGS, "--entity-type", "groups", "--entity-name", GROUP, *arguments)


def settings(script: Script) -> None:
    """kafka-configs on a group: show, set, take back, refuse."""
    script.configs("--describe")
    script.configs("--alter", "--add-config", "share.auto.offset.reset=earliest,share.delivery.count.limit=4")
    script.configs("--describe")
    script.configs("--alter", "--delete-config", "share.delivery.count.limit")
    script.configs("--describe")
    script.configs("--alter", "--add-config", "share.record.lock.duration.ms=1")
    script.configs("--alter", "--add-config", "share.no.such.setting=1")


def with_a_member(script: Script) -> None:
    """A group at work: lists, descriptions, and what is refused while it has members."""
    world = script.world
    topic = world.topic()
    world.raw.produce(topic, 5, 5)
    member = script.member = world.member(world.group(start="earliest"), topics=[topic])
    member.take_all(10, topic)
    member.acknowledge((topic, 0, 0, 4, RELEASE), (topic, 0, 5, 9, ACCEPT))
    script.run(GROUPS, "--list", "--share")
    script.share("--list", "--state")
    describe = ["--describe", "--group", GROUP]
    script.share(*describe, "--verbose")
    script.share(*describe, "--members", "--verbose")
    script.share(*describe, "--state", "--verbose")
    script.share("--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
    script.share("--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    script.share("--delete", "--group", GROUP)
    member.heartbeat(-1)
    member.disconnect()
    script.member = None


def without_members(script: Script) -> None:
    """An empty group: offsets set back, deleted, and the group as well."""
    describe = ["--describe", "--group", GROUP]
    reset = ["--reset-offsets", "--topic", TOPIC]
    script.share(*describe)
    script.share(*reset, "--group", GROUP, "--to-latest", "--execute")
    script.share(*describe, "--verbose")
    script.share(*reset, "--group", OTHER, "--to-earliest", "--execute")
    script.share("--describe", "--group", OTHER, "--state")
    script.share("--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    script.share("--delete-offsets", "--group", GROUP, "--topic", f"{PREFIX}-absent")
    script.share(*describe)
    script.share("--delete", "--group", GROUP)
    script.share("--delete", "--group", GROUP)
    script.share("--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    script.share(*describe)


def _play(name: str, bootstrap: str) -> Printed:
    script = Script(name, bootstrap)
    try:
        for part in (settings, with_a_member, without_members):
            part(script)
    finally:
        script.close()
    return {step: [EPOCHS.sub("N", line) for line in lines] for step, lines in script.output.items()}


def test_the_tools_print_the_same(kafka_43_quick, proxy_39_quick):
    """Every step; the start offset is released again in front, so that both worlds tell the same one."""
    with ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(_play, "native", kafka_43_quick.bootstrap),
            pool.submit(_play, "proxy", proxy_39_quick.bootstrap),
        ]
        native, proxy = (each.result() for each in running)
    assert proxy == native
