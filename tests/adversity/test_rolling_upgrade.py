"""A fleet is upgraded proxy by proxy from the first version: both versions serve it together, and nothing is lost.

The earlier version is taken from the history of the repository and runs in separate processes. Where there is no
history (an archive, a shallow clone), tests/golden/test_earlier_versions.py compares what both versions write.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.front import installed_command
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.brokers import OLD, Running
from tests.support.commit_topic import CommitTopic
from tests.support.fleet import Fleet
from tests.support.raw import Raw, Topic, until
from tests.support.worlds import ACCEPT, World

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(480)]

CHECKOUT = Path(__file__).resolve().parents[2]
EARLIER = "6f4d22be051d06473d45bff5484238fd7804662d"
"""The commit that recorded tests/golden/proxy-0.1.0.json."""
PROXIES = ("a", "b")
GROUPS = 6
"""Number of groups of each kind: every proxy owns some of them."""
RECORDS = 4
"""Produced for each stage at each proxy."""
AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the earlier version."""
    archived = subprocess.run(["git", "archive", EARLIER], cwd=CHECKOUT, capture_output=True, check=False)
    if archived.returncode:
        pytest.skip(f"commit {EARLIER} is not here: {archived.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return ["env", f"PYTHONPATH={folder}", sys.executable, "-P", "-m", "proxy"]


class Traffic:
    """A share group and groups that commit individually, used at every proxy in each stage."""

    def __init__(self, fleet: Fleet, kafka: str, prefix: str) -> None:
        self.fleet, self.prefix = fleet, prefix
        with Raw(kafka) as raw:
            self.topic: Topic = raw.create_topic(f"{prefix}-t")
        self.accepted: dict[str, list[int]] = {f"g{number}": [] for number in range(GROUPS)}
        """Offsets that were accepted, by share group."""
        self.committed = {f"{prefix}-c{number}": 0 for number in range(GROUPS)}
        """Ranges that were committed, by group."""
        self.stages = 0

    def use(self) -> None:
        """Produce, accept and commit at each proxy."""
        for name in PROXIES:
            self.stages += 1
            world = self.fleet.world(name, self.prefix)
            world.label_topic(self.topic)
            world.raw.produce(self.topic, RECORDS)
            for group in self.accepted:
                self._accept(world, group)
            for group in self.committed:
                self._commit(world, group)
        self.fleet.close_worlds()

    def _accept(self, world: World, label: str) -> None:
        group = world.group(label)
        member = world.member(group, f"{label}-{self.stages}", topics=[self.topic])
        expected = self.stages * RECORDS
        while len(self.accepted[label]) < expected:
            for first, last, deliveries in member.take(self.topic).acquired(self.topic):
                assert deliveries == 1, "nothing is delivered again"
                assert member.acknowledge((self.topic, 0, first, last, ACCEPT)).code(self.topic) == 0
                self.accepted[label] += range(first, last + 1)
        assert self.accepted[label] == list(range(expected)), label
        member.heartbeat(-1, silent=True)
        member.disconnect()

    def _commit(self, world: World, group: str) -> None:
        """One range more, with a hole before it."""
        first = 10 * (self.committed[group] + 1)
        partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": f"ic/1;{first}-{first}"}

        def is_done() -> bool:
            response = world.raw.send_request(
                "OffsetCommit", 8, on=world.raw.on_coordinator(group), group_id=group, member_id="",
                generation_id_or_member_epoch=-1, topics=[{"name": self.topic.name, "partitions": [partition]}],
            )  # fmt: skip
            code = response.topics[0].partitions[0].error_code
            assert code in {0, *AGAIN}
            return code == 0

        until(is_done, f"a commit of {group}")
        self.committed[group] += 1

    def ranges(self, group: str) -> str:
        """Return those that were confirmed."""
        return ",".join(f"{10 * number}-{10 * number}" for number in range(1, self.committed[group] + 1))


@pytest.fixture
def fleet(running: Running, earlier: list[str]) -> Iterator[tuple[Fleet, str]]:
    kafka = running.cluster(OLD)
    mixed_fleet = Fleet(running, kafka)
    for name in PROXIES:
        mixed_fleet.start(name, command=earlier)
    yield mixed_fleet, kafka.bootstrap
    mixed_fleet.close_worlds()


def test_fleet_is_upgraded_proxy_by_proxy_and_back(
    fleet: tuple[Fleet, str], earlier: list[str], fresh: Callable[[str], str]
) -> None:
    """The last step is a downgrade: the earlier version reads what the later one has written."""
    proxies, bootstrap = fleet
    proxies.settled(*PROXIES)
    traffic = Traffic(proxies, bootstrap, fresh("w")[-16:])
    traffic.use()
    for name, command in (("a", installed_command()), ("b", installed_command()), ("a", earlier)):
        front = proxies.fronts[name]
        assert front.stop() == 0
        front.command = command
        front.start()
        proxies.settled(*PROXIES)
        traffic.use()
    oracle = CommitTopic(bootstrap)
    try:
        for group in traffic.committed:
            assert oracle.live(group, traffic.topic.name) == traffic.ranges(group)
    finally:
        oracle.close()
    for front in proxies.fronts.values():
        assert "peer-message-unknown" not in front.output()
