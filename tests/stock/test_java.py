"""The stock Java client, through Kafka's own command-line tools, through the proxy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.java_tools import NEWEST, start, tool
from tests.support.raw import Raw, until
from tests.support.tool_shell import ToolShell

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

PARTITIONS = 4
Fresh = Callable[[str], str]
CONSUMER_GROUPS, SHARE_GROUPS = "consumer.group.ConsumerGroupCommand", "consumer.group.ShareGroupCommand"
LINES = [f"line {number}" for number in range(100)]


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolShell]:
    with ToolShell() as shell:
        yield shell


@pytest.fixture
def topic(front: Front, fresh: Fresh) -> str:
    name = fresh("topic")
    with Raw(front.bootstrap) as raw:
        raw.create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def group(front: Front, fresh: Fresh) -> str:
    """Create a group that, as a share group, begins at the start of the log and assigns immediately."""
    name = fresh("group")
    with Raw(front.bootstrap) as raw:
        raw.configure_group(name, {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"})
    return name


def _console_produce(front: Front, topic: str, *options: str, releases: tuple[str, ...] = ("4.3.0",)) -> None:
    text = "".join(f"{line}\n" for line in LINES)
    arguments = ("--bootstrap-server", front.bootstrap, "--topic", topic, *options)
    name = "kafka.tools.ConsoleProducer" if releases[0].startswith("3.") else "ConsoleProducer"
    tool(name, *arguments, text=text, releases=releases)


def _read(front: Front, name: str, topic: str, group: str, *options: str, releases: tuple[str, ...]) -> list[str]:
    printed = tool(
        name, "--bootstrap-server", front.bootstrap, "--topic", topic, "--group", group, *options,
        "--max-messages", str(len(LINES)), "--timeout-ms", "90000", releases=releases,
    )  # fmt: skip
    return sorted(printed.splitlines())


@pytest.mark.parametrize("releases", [("4.3.0",), NEWEST], ids=["4.3.0", "newest"])
def test_console_tools(front: Front, topic: str, group: str, fresh: Fresh, releases: tuple[str, ...]) -> None:
    """Records of the console producer are read by the console consumer and by the console share consumer."""
    _console_produce(front, topic, "--compression-codec", "lz4", releases=releases)
    read = _read(
        front, "consumer.ConsoleConsumer", topic, fresh("classic"), "--from-beginning", releases=releases
    )  # fmt: skip
    assert read == sorted(LINES)
    shared = _read(front, "consumer.ConsoleShareConsumer", topic, group, releases=releases)
    assert shared == sorted(LINES)


def test_old_tools(front_39: Front, fresh: Fresh) -> None:
    """The tools of the broker's own release."""
    topic = fresh("topic")
    with Raw(front_39.bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
    _console_produce(front_39, topic, releases=("3.9.1",))
    options = ("--from-beginning", "--property", "print.value=true")
    read = _read(front_39, "consumer.ConsoleConsumer", topic, fresh("group"), *options, releases=("3.9.1",))
    assert read == sorted(LINES)


@pytest.mark.parametrize(("front", "protocol"), [("3.9.1", "classic"), ("4.3.0", "consumer")], indirect=["front"])
def test_group_rebalances(front: Front, fresh: Fresh, tmp_path: Path, protocol: str) -> None:
    """A second member takes half of the partitions; when it leaves, the first has them all again."""
    topic, group = fresh("topic"), fresh("group")
    with Raw(front.bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
    options = ["--bootstrap-server", front.bootstrap, "--topic", topic, "--group-id", group]
    options += ["--group-protocol", protocol]
    with ExitStack() as stack:
        members = [start("VerifiableConsumer", tmp_path / name, *options) for name in ("first", "second")]
        for member in members:
            stack.callback(member.kill)
        until(lambda: [_held(tmp_path / name) for name in ("first", "second")] == [2, 2], "an even assignment")
        members[1].stop()
        until(lambda: _held(tmp_path / "first") == PARTITIONS, "all partitions")
        assert members[0].status is None
        members[0].stop()


def test_consumers_that_start_together_divide_the_work(front_39: Front, fresh: Fresh) -> None:
    """All four have partitions immediately, with default settings, and none drops records of a lost partition.

    A record that was dropped would be locked for a minute: the tool gives up before that and shows too few.
    """
    topic, group, records = fresh("topic"), fresh("group"), 400_000
    with Raw(front_39.bootstrap) as raw:
        raw.create_topic(topic, 2)
        raw.configure_group(group, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"})
    size = ("--num-records", str(records), "--record-size", "100", "--throughput", "-1")
    tool("ProducerPerformance", "--topic", topic, *size, "--producer-props", f"bootstrap.servers={front_39.bootstrap}")
    rows = tool(
        "ShareConsumerPerformance", "--bootstrap-server", front_39.bootstrap, "--topic", topic, "--group", group,
        "--num-records", str(records), "--threads", "4", "--timeout", "20000", "--hide-header",
        "--show-detailed-stats", "--reporting-interval", "100",
    )  # fmt: skip
    assert set(re.findall(r"for share consumer (\d)\b", rows)) == {"1", "2", "3", "4"}
    (total,) = re.findall(r", (\d+), \d+$", rows.strip().splitlines()[-1])
    assert int(total) == records


def _held(log: Path) -> int:
    """How many partitions a VerifiableConsumer holds by the events it printed."""
    held: set[tuple[str, int]] = set()
    for line in log.read_text().splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        changed = {(each["topic"], each["partition"]) for each in event.get("partitions", ())}
        if event.get("name") == "partitions_assigned":
            held |= changed
        elif event.get("name") == "partitions_revoked":
            held -= changed
    return len(held)


def test_transactions(front: Front, topic: str, fresh: Fresh) -> None:
    """Records of many small transactions are all there for a reader of committed records."""
    _perform(front, topic, 1000, "--transactional-id", fresh("id"), "--transaction-duration-ms", "50")
    printed = tool(
        "consumer.ConsoleConsumer", "--bootstrap-server", front.bootstrap, "--topic", topic, "--from-beginning",
        "--isolation-level", "read_committed", "--max-messages", "1000", "--timeout-ms", "90000",
    )  # fmt: skip
    assert len(printed.splitlines()) == 1000


def _perform(front: Front, topic: str, records: int, *options: str) -> str:
    return tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size", "100",
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={front.bootstrap}", *options,
    )  # fmt: skip


def test_performance_tools(front: Front, topic: str, group: str, fresh: Fresh) -> None:
    """The performance tools transfer all records, as consumers and as share consumers."""
    records = 20_000
    assert f"{records} records sent" in _perform(front, topic, records)
    requested = ("--bootstrap-server", front.bootstrap, "--topic", topic, "--messages", str(records))
    assert _moved(tool("ConsumerPerformance", *requested, "--group", fresh("classic"))) == records
    assert _moved(tool("ShareConsumerPerformance", *requested, "--group", group)) >= records


def _moved(printed: str) -> int:
    """The number of messages in the table that a performance tool prints."""
    header, *rows = [line.split(", ") for line in printed.splitlines() if ", " in line]
    column = next(index for index, name in enumerate(header) if "data.consumed.in.nMsg" in name)
    return int(float(rows[-1][column]))


def test_admin_tools(front: Front, fresh: Fresh, tools: ToolShell) -> None:
    """Topics, groups and configurations can be made, shown and removed."""
    topic, group = fresh("topic"), fresh("group")
    server = ("--bootstrap-server", front.bootstrap)
    tools.prints("TopicCommand", *server, "--create", "--topic", topic, "--partitions", "3")
    assert tools.prints("TopicCommand", *server, "--describe", "--topic", topic).count("Leader: 1") == 3
    reset = ("--reset-offsets", "--to-earliest", "--execute")
    tools.prints(CONSUMER_GROUPS, *server, "--group", group, "--topic", topic, *reset)
    assert group in tools.prints(CONSUMER_GROUPS, *server, "--list").splitlines()
    printed = tools.prints(CONSUMER_GROUPS, *server, "--describe", "--group", group)
    assert printed.count(topic) == 3
    assert group in tools.prints("GroupsCommand", *server, "--list")
    tools.prints(CONSUMER_GROUPS, *server, "--delete", "--group", group)
    tools.prints("TopicCommand", *server, "--delete", "--topic", topic)
    assert topic not in tools.prints("TopicCommand", *server, "--list").splitlines()


def test_share_group_tool(front: Front, topic: str, group: str, tmp_path: Path, tools: ToolShell) -> None:
    """A live share group is listed and described with its members; deleted, it is gone."""
    server = ("--bootstrap-server", front.bootstrap)
    consumer = start(
        "consumer.ConsoleShareConsumer", tmp_path / "consumer", *server, "--topic", topic, "--group", group
    )
    try:
        until(lambda: "Stable" in tools.prints(SHARE_GROUPS, *server, "--list", "--state"), "the group")
        members = (*server, "--describe", "--group", group, "--members", "--verbose")
        until(lambda: f"{topic}:0,1,2,3" in tools.prints(SHARE_GROUPS, *members), "the member's partitions")
    finally:
        consumer.stop()
    until(
        lambda: "Empty" in tools.prints(SHARE_GROUPS, *server, "--describe", "--group", group, "--state"),
        "its end",
    )
    tools.prints(SHARE_GROUPS, *server, "--delete", "--group", group)
    assert group not in tools.prints(SHARE_GROUPS, *server, "--list").splitlines()
