"""Kafka's own command-line tools, of both releases, run against bases, views and share groups without tripping.

That they print of share groups what they print natively: tests/oracle/test_tools.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.java_tools import RUN_S, command
from tests.support.raw import Raw, until
from tests.support.tool_shell import ToolShell
from tests.support.worlds import Member, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

OLD, NEW = "3.9.1", "4.3.0"
TOPICS, CONFIGS, LOG_DIRS, OFFSETS = "TopicCommand", "kafka.admin.ConfigCommand", "LogDirsCommand", "GetOffsetShell"
GROUPS, SHARE_GROUPS = "consumer.group.ConsumerGroupCommand", "consumer.group.ShareGroupCommand"
CONSUMER, SHARE_CONSUMER = "consumer.ConsoleConsumer", "consumer.ConsoleShareConsumer"
PRODUCER = {OLD: "kafka.tools.ConsoleProducer", NEW: "ConsoleProducer"}
CONSOLES = {CONSUMER, SHARE_CONSUMER, *PRODUCER.values()}
"""They read an input, or until a signal: each needs a separate Java."""
COUNT = 7
HEARTBEAT_S = 2.0
AT_ONCE = 3
"""Parts that run at the same time: most of a console is the start of its Java."""
TROUBLE = ("Exception", "ERROR", "Error")


@dataclass
class Shell:
    """The tools of one release, and what they are run against."""

    tools: ToolShell
    release: str
    bootstrap: str
    base: str
    view: str
    group: str
    share_group: str

    def run(self, tool: str, *arguments: str, text: str | None = None) -> tuple[int, str]:
        """Status, and all that was printed."""
        server = ("--bootstrap-server", self.bootstrap)
        if tool not in CONSOLES:
            ended = self.tools.run(tool, *server, *arguments)
            return ended.status, ended.output + ended.errors
        line = command(tool, *server, *arguments, releases=(self.release,))
        done = subprocess.run(line, capture_output=True, text=True, timeout=RUN_S, check=False, input=text)
        return done.returncode, done.stdout + done.stderr

    def prints(self, tool: str, *arguments: str, text: str | None = None) -> str:
        """Return what a tool prints that ends well and complains of nothing."""
        status, printed = self.run(tool, *arguments, text=text)
        assert (status, [word for word in TROUBLE if word in printed]) == (0, []), f"{tool} {arguments}: {printed}"
        return printed


def topics(shell: Shell) -> None:
    """kafka-topics lists the base and shows it; views are not in the list of all topics, by which it looks names up."""
    listed = shell.prints(TOPICS, "--list").split()
    assert (shell.base in listed, shell.view in listed) == (True, False)
    assert shell.prints(TOPICS, "--describe", "--topic", shell.base).count("Leader: 1") == 2
    status, printed = shell.run(TOPICS, "--describe", "--topic", shell.view)
    assert (status, "does not exist as expected" in printed) == (1, True), printed
    assert "Could not match any" in shell.run(OFFSETS, "--topic", shell.view)[1]


def offsets(shell: Shell) -> None:
    """kafka-get-offsets and kafka-log-dirs: the view has partitions, and nothing in them."""
    ends = [int(line.split(":")[2]) for line in shell.prints(OFFSETS, "--topic", shell.base).split()]
    assert (len(ends), sum(ends)) == (2, COUNT)
    for topic, partitions in {shell.base: 2, shell.view: 4}.items():
        assert shell.prints(LOG_DIRS, "--describe", "--topic-list", topic).count(f'"{topic}-') == partitions


def configs(shell: Shell) -> None:
    """kafka-configs: topics, brokers, and what a group has of share settings."""
    for topic in (shell.base, shell.view):
        shell.prints(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic)
    shell.prints(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1")
    if shell.release == NEW:
        of = ["--entity-type", "groups", "--entity-name", shell.share_group]
        shell.prints(CONFIGS, "--alter", *of, "--add-config", "share.delivery.count.limit=4")
        assert "share.delivery.count.limit=4" in shell.prints(CONFIGS, "--describe", *of)


def consumer_groups(shell: Shell) -> None:
    """Records of the producer are read from base and view, and kafka-consumer-groups shows the lag of both."""
    for topic in (shell.base, shell.view):
        read = ["--topic", topic, "--group", shell.group, "--from-beginning", "--max-messages", str(COUNT)]
        assert shell.prints(CONSUMER, *read, "--timeout-ms", "90000").count("record ") == COUNT
    assert shell.group in shell.prints(GROUPS, "--list").split()
    of = ["--describe", "--group", shell.group]
    shown = shell.prints(GROUPS, *of)
    assert (shown.count(f" {shell.base} "), shown.count(f" {shell.view} ")) == (2, 4), shown
    shell.prints(GROUPS, *of, "--members", "--verbose")
    assert "Empty" in shell.prints(GROUPS, *of, "--state")
    assert shell.view in shell.prints(GROUPS, "--describe", "--all-groups")
    reset = ["--reset-offsets", "--group", shell.group, "--topic", shell.view, "--to-earliest", "--execute"]
    assert shell.prints(GROUPS, *reset).count(shell.view) == 4
    deleted = shell.prints(GROUPS, "--delete-offsets", "--group", shell.group, "--topic", shell.view)
    assert deleted.count("Successful") == 4, deleted
    shell.prints(GROUPS, "--delete", "--group", shell.group)


def share_groups(shell: Shell) -> None:
    """kafka-share-groups with a member, and the console share consumer; a view is no topic for it."""
    if shell.release == OLD:
        return  # it has neither
    of = ["--describe", "--group", shell.share_group]
    assert shell.base in shell.prints(SHARE_GROUPS, *of)
    assert "Stable" in shell.prints(SHARE_GROUPS, *of, "--state")
    shell.prints(SHARE_GROUPS, *of, "--members", "--verbose")
    assert shell.share_group in shell.prints(SHARE_GROUPS, "--list").split()
    group = f"{shell.share_group}-console"
    shell.prints(CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", group,
                 "--add-config", "share.auto.offset.reset=earliest")  # fmt: skip
    read = ["--topic", shell.base, "--group", group, "--max-messages", str(COUNT), "--timeout-ms", "90000"]
    assert shell.prints(SHARE_CONSUMER, *read).count("record ") == COUNT
    assert shell.base in shell.prints(SHARE_GROUPS, "--describe", "--group", group)
    shell.prints(SHARE_GROUPS, "--delete", "--group", group)


PARTS = (topics, offsets, configs, consumer_groups, share_groups)


@pytest.fixture(params=[(OLD, OLD), (NEW, OLD), (NEW, NEW)], ids=lambda pair: f"{pair[0]}-on-{pair[1]}")
def shell(request: pytest.FixtureRequest, fresh: Callable[[str], str]) -> Iterator[Shell]:
    release, broker = request.param
    front: Front = request.getfixturevalue({OLD: "views_39", NEW: "views_43"}[broker])
    base = fresh("base")
    with Raw(front.bootstrap) as raw:
        raw.create_topic(base, 2)
        view = until(lambda: raw.view(f"__view.r2.{base}"), "the view").name
    with ToolShell(release) as tools:
        yield Shell(tools, release, front.bootstrap, base, view, fresh("group"), fresh("share"))


@pytest.fixture
def member(shell: Shell) -> Iterator[Member]:
    """A member of the share group."""
    world = World("proxy", shell.bootstrap, shell.share_group)
    topic = world.raw.topic(shell.base)
    assert topic is not None
    member = Member(world, shell.share_group, "a-member-of-22-letters")
    world.raw.configure_group(shell.share_group, {"share.auto.offset.reset": "earliest"})
    member.join([topic])
    yield member
    world.close()


def test_stock_tools_never_trip(shell: Shell, member: Member) -> None:
    """Each part of an administrator's work, several concurrently, with a member of a share group."""
    text = "".join(f"record {number}\n" for number in range(COUNT))
    shell.prints(PRODUCER[shell.release], "--topic", shell.base, text=text)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(part, shell) for part in PARTS]
        while wait(running, HEARTBEAT_S).not_done:
            member.heartbeat(silent=True)
    for each in running:
        each.result()
