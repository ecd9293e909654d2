"""Individual commits at two proxies of one cluster: one that waits, and two that share the groups."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.commit_topic import CommitTopic
from tests.support.raw import Raw, until

pytestmark = pytest.mark.broker

Fresh = Callable[[str], str]
NOT_AVAILABLE = 15
IN_MEMORY = {"share_groups": {"state": "memory"}}
"""Share groups are served by both; ranges have one owner."""
AGAIN = (14, NOT_AVAILABLE)
"""Every client repeats a commit for these."""


@pytest.fixture
def kafka(running: Running) -> Cluster:
    """Cluster for this test alone: proxies of a cluster have one owner, or share it."""
    return running.cluster(OLD)


@pytest.fixture(params=["topic", "metadata"])
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def oracle(kafka: Cluster, state: str) -> Iterator[CommitTopic]:
    opened = CommitTopic(kafka.bootstrap, in_metadata=state == "metadata")
    yield opened
    opened.close()


class Client:
    """Client of one proxy."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.raw = Raw(front.bootstrap)

    def commit(self, group: str, topic: str, offset: int, metadata: str = "") -> int:
        """The code."""
        entry = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}
        response = self.raw.send_request(
            "OffsetCommit", 8, on=self.raw.on_coordinator(group), group_id=group,
            generation_id_or_member_epoch=-1, topics=[{"name": topic, "partitions": [entry]}],
        )  # fmt: skip
        return int(response.topics[0].partitions[0].error_code)

    def commits(self, group: str, topic: str, offset: int, metadata: str = "") -> None:
        """Until it is accepted, as a client does."""

        def accepted() -> bool:
            code = self.commit(group, topic, offset, metadata)
            assert code == 0 or code in AGAIN, code
            return code == 0

        until(accepted, f"commit of {group} at {self.front.bootstrap}")

    def committed(self, group: str, topic: str) -> tuple[int, str]:
        def described() -> Any:
            response = self.raw.send_request(
                "OffsetFetch", 7, on=self.raw.on_coordinator(group), group_id=group,
                topics=[{"name": topic, "partition_indexes": [0]}],
            )  # fmt: skip
            return None if response.error_code in AGAIN else response.topics[0].partitions[0]

        entry = until(described, f"offsets of {group}")
        return entry.committed_offset, entry.metadata

    def knows(self, count: int) -> None:
        """Wait until its proxy has read that this many groups commit individually."""

        def described() -> bool:
            return int(json.loads(self.front.send_request("/readyz")[1])["commits"]["groups"]) == count

        until(described, f"{self.front.bootstrap} to know {count} groups")


def started(front: Front, clients: list[Client]) -> Client:
    clients.append(Client(front))
    return clients[-1]


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    started_clients: list[Client] = []
    yield started_clients
    for client in started_clients:
        client.raw.close()


def test_proxy_that_waits_refuses_what_would_be_a_rewind_and_takes_over(
    kafka: Cluster, running: Running, clients: list[Client], oracle: CommitTopic, fresh: Fresh, state: str
) -> None:
    """`cluster.mode: single`: texts and commits of known groups get 15, all other groups notice nothing."""
    settings = IN_MEMORY | {"commits": {"state": state}}
    owner = started(running.front(kafka.bootstrap, settings), clients)
    until(lambda: owner.front.send_request("/readyz/commits")[0], "ranges to be loaded")
    second = started(running.front(kafka.bootstrap, settings), clients)
    topic, group, plain = fresh("topic"), fresh("group"), fresh("plain")
    owner.raw.create_topic(topic)
    owner.commits(group, topic, 43, "ic/1;45-47")
    second.knows(1)
    assert second.commit(group, topic, 50) == NOT_AVAILABLE
    assert second.commit(fresh("new"), topic, 3, "ic/1;5-6") == NOT_AVAILABLE
    assert second.commit(plain, topic, 7, "user text") == 0
    assert second.committed(plain, topic) == (7, "user text")
    assert oracle.primary(group, topic) == (43, "")
    assert "individual-commits-standby" in second.front.output()
    assert second.front.send_request("/readyz")[0]
    assert not second.front.send_request("/readyz/commits")[0]
    owner.front.stop()
    second.commits(group, topic, 43, "ic/1;43-44")
    assert second.committed(group, topic) == (48, "")
    until(lambda: second.front.send_request("/readyz/commits")[0], "ranges of all groups to be loaded")
    second.front.stop()


def fleet_of(running: Running, kafka: Cluster, states: Sequence[str]) -> list[Front]:
    """Proxies that share the groups, each with its `commits.state`."""
    fronts = []
    for state in states:
        peer = {"listen": f"{HOST}:{free_ports(1)[0]}", "secret": "of this fleet alone"}
        settings = {"cluster": {"mode": "fleet", "peer": peer}, "commits": {"state": state}}
        fronts.append(running.front(kafka.bootstrap, settings))
    return fronts


@pytest.mark.parametrize(
    ("state", "states"),
    [("topic", ("topic", "topic")), ("metadata", ("metadata", "topic")), ("metadata", ("metadata", "metadata"))],
    indirect=["state"],
)
def test_t15_ranges_of_a_fleet_are_merged_at_their_owner_and_outlive_it(
    kafka: Cluster,
    running: Running,
    clients: list[Client],
    oracle: CommitTopic,
    fresh: Fresh,
    states: tuple[str, str],
) -> None:
    """Groups of both owners, committed at either proxy; one is killed in the middle, and nothing is lost."""
    a, b = (started(front, clients) for front in fleet_of(running, kafka, states))
    topic = fresh("topic")
    a.raw.create_topic(topic)
    groups = [fresh("group") for _ in range(8)]
    turns = itertools.cycle((a, b))
    for group in groups:
        next(turns).commits(group, topic, 3, "ic/1;5-7,20-20")
        next(turns).commits(group, topic, 3, "ic/1;8-9,30-30")
        next(turns)
    for group in groups:
        for client in (a, b):
            assert client.committed(group, topic) == (3, "ic/1;5-9,20-20,30-30")
        assert oracle.live(group, topic) == "5-9,20-20,30-30"
    for group in groups[:4]:  # wherever it is owned, a plain commit goes there
        next(turns).commits(group, topic, 5)
        assert oracle.primary(group, topic) == (10, "")
    a.front.kill()
    for group in groups:
        b.commits(group, topic, 3 if group in groups[4:] else 10, "ic/1;3-4,40-40")
        expected = (10, "ic/1;20-20,30-30,40-40")
        assert b.committed(group, topic) == expected
    a.front.start()
    a.front.stop()
    b.front.stop()
