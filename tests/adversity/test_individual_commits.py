"""Individual commits through crashes: kill -9 between any two steps of a commit, and of the owner in a fleet."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front, installed_command
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support import dying_commit_proxy
from tests.support.brokers import NEW, OLD, Running
from tests.support.commit_topic import CommitTopic
from tests.support.consume_transform import Job
from tests.support.dying_commit_proxy import FAULTS, TRIGGER
from tests.support.fleet import LEASE_S, Fleet
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(480)]

CHECKOUT = Path(__file__).resolve().parents[2]
Fresh = Callable[[str], str]
AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""For these every client repeats a commit."""


def commit(bootstrap: str, group: str, topic: str, offset: int, text: str | None = None) -> int:
    """Send one commit of a tool on a new connection."""
    with Raw(bootstrap) as raw:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": text}
        response = raw.send_request(
            "OffsetCommit", 8, on=raw.on_coordinator(group), group_id=group, generation_id_or_member_epoch=-1,
            member_id="", topics=[{"name": topic, "partitions": [partition]}],
        )  # fmt: skip
    return int(response.topics[0].partitions[0].error_code)


def commit_at_last(bootstrap: str, group: str, topic: str, offset: int, text: str | None = None) -> None:
    """Commit as a client that repeats retriable errors and reconnects."""

    def is_done() -> bool:
        try:
            code = commit(bootstrap, group, topic, offset, text)
        except OSError:
            return False
        assert code in {0, *AGAIN}
        return code == 0

    until(is_done, f"a commit of {group}")


def recreate(bootstrap: str, topic: str) -> None:
    """Delete a topic and create it again."""
    with Raw(bootstrap) as raw:
        existing = raw.topic(topic)
        assert existing is not None
        raw.delete_topic(existing)
        raw.create_topic(topic)


def shown(bootstrap: str, group: str, topic: str) -> tuple[int, str]:
    """Return the commits that a member sees."""

    def send_request() -> tuple[int, str] | None:
        with Raw(bootstrap) as raw:
            response = raw.send_request(
                "OffsetFetch", 7, on=raw.on_coordinator(group), group_id=group, require_stable=True,
                topics=[{"name": topic, "partition_indexes": [0]}],
            )  # fmt: skip
        if response.error_code in AGAIN:
            return None
        entry = response.topics[0].partitions[0]
        return entry.committed_offset, entry.metadata

    committed: tuple[int, str] = until(send_request, f"what {group} has committed")
    return committed


TOPIC, METADATA, OVERFLOW = "topic", "metadata", "overflow"
"""Places of ranges. Overflow: in the metadata, which has no room at the broker."""
SETTINGS = {
    TOPIC: {"commits": {"state": "topic"}},
    METADATA: {"commits": {"state": "metadata"}},
    OVERFLOW: {"commits": {"state": "metadata"}},
}


@pytest.fixture(scope="module", params=[OLD, pytest.param(NEW, marks=pytest.mark.long)])
def brokers(request: pytest.FixtureRequest, running: Running) -> dict[str, Cluster]:
    """One broker for both settings, and one with room for a few characters of metadata."""
    roomy = running.cluster(request.param)
    small = running.cluster(request.param, properties={"offset.metadata.max.bytes": "8"})
    return {TOPIC: roomy, METADATA: roomy, OVERFLOW: small}


@pytest.fixture(params=[TOPIC, *(pytest.param(place, marks=pytest.mark.long) for place in (METADATA, OVERFLOW))])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kafka(brokers: dict[str, Cluster], place: str) -> Cluster:
    return brokers[place]


@pytest.fixture
def oracle(kafka: Cluster, place: str) -> Iterator[CommitTopic]:
    commit_topic = CommitTopic(kafka.bootstrap, in_metadata=place != TOPIC)
    yield commit_topic
    commit_topic.close()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        pytest.param("ic/1;43-44", (43, "ic/1;45-47,60-61"), (48, "ic/1;60-61"), id="moves the mark"),
        pytest.param("ic/1;48-59", (43, "ic/1;45-47,60-61"), (43, "ic/1;45-61"), id="merges"),
    ],
)
def test_t9_a004_12_kill_anywhere_leaves_the_state_before_or_after(
    kafka: Cluster, oracle: CommitTopic, place: str, tmp_path: Path, fresh: Fresh, fault: str, text: str,
    before: tuple[int, str], after: tuple[int, str],
) -> None:  # fmt: skip
    """Repeating the commit leads to the state after it, with nothing else left in the topic."""
    if place == METADATA and fault in FAULTS[2:]:
        pytest.skip("no append follows")
    command = [sys.executable, str(Path(dying_commit_proxy.__file__)), fault]
    group, topic = fresh("group"), fresh("topic")
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(topic)
    front = Front(kafka.bootstrap, tmp_path / "proxy", SETTINGS[place], command=command)
    front.start()
    try:
        commit_at_last(front.bootstrap, group, topic, 43, "ic/1;45-47,60-61")
        with pytest.raises(OSError) if place != OVERFLOW else suppress(OSError):
            commit(front.bootstrap, group, topic, 43, f"{text};u={TRIGGER}")  # obsolete records are deleted afterwards
        until(lambda: front.child is not None and front.child.status is not None, "the proxy to be dead")
    finally:
        front.kill()
    front.command = installed_command()
    with front as again:  # at its address, so that the group of proxies admits it immediately
        committed = shown(again.bootstrap, group, topic)
        plain = (committed[0], committed[1].replace(f";u={TRIGGER}", "").replace(TRIGGER, ""))
        assert plain in (before, after)
        commit_at_last(again.bootstrap, group, topic, 43, text)
        assert shown(again.bootstrap, group, topic) == after
        assert oracle.primary(group, topic)[0] == after[0]
        assert f"ic/1;{oracle.live(group, topic)}" == after[1]


def test_t9_plain_commit_after_a_crash_between_offset_and_tombstones(
    kafka: Cluster, oracle: CommitTopic, place: str, tmp_path: Path, fresh: Fresh
) -> None:
    """The owner moved the mark and died; a plain commit moves it further before anybody has looked."""
    command = [sys.executable, str(Path(dying_commit_proxy.__file__)), FAULTS[1]]
    group, topic = fresh("group"), fresh("topic")
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(topic)
    front = Front(kafka.bootstrap, tmp_path / "proxy", SETTINGS[place], command=command)
    front.start()
    try:
        commit_at_last(front.bootstrap, group, topic, 43, "ic/1;45-47,60-61")
        with pytest.raises((OSError, ConnectionError)):
            commit(front.bootstrap, group, topic, 43, f"ic/1;43-44;u={TRIGGER}")
    finally:
        front.kill()
    assert oracle.primary(group, topic)[0] == 48
    assert oracle.live(group, topic) == ("45-47,60-61" if place == TOPIC else "60-61")
    front.command = installed_command()
    with front as again:
        commit_at_last(again.bootstrap, group, topic, 60)
        assert oracle.primary(group, topic)[0] == 62
        assert oracle.live(group, topic) == ""


def test_t14_each_input_is_once_in_the_output_through_crashes(
    kafka: Cluster, place: str, tmp_path: Path, fresh: Fresh
) -> None:
    """Consume, transform and produce in a separate process, while the proxy is killed (-9) three times."""
    if place == OVERFLOW:
        pytest.skip("the brokers have no room for the members' own texts, in any state (measured: 12)")
    dice, records = random.Random(14), 600
    topic, output, group = fresh("topic"), fresh("out"), fresh("group")
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(output)
        raw.produce(raw.create_topic(topic), [b"%d" % number for number in range(records)])
    with Front(kafka.bootstrap, tmp_path / "proxy", SETTINGS[place]) as front:
        worker = [sys.executable, "-m", "tests.support.consume_transform"]
        arguments = [front.bootstrap, topic, output, group, str(records), "14"]
        found_in = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (CHECKOUT, CHECKOUT / "proxy")))}
        work = Child([*worker, *arguments], tmp_path / "worker.log", found_in)
        try:
            for _ in range(3):
                time.sleep(dice.uniform(0.3, 1.2))
                assert work.status is None, "it was over before the proxy was killed"
                front.kill()
                front.start()
            until(lambda: work.status is not None, "the worker", limit_s=240)
        finally:
            work.kill()
        assert work.status == 0, work.output()
        assert Job(front.bootstrap, topic, output, group, records, seed=14).results() == list(range(records))


@pytest.mark.parametrize("place", [TOPIC, pytest.param(METADATA, marks=pytest.mark.long)])
def test_t15_owner_that_is_killed_is_followed_and_the_union_is_kept(running: Running, fresh: Fresh, place: str) -> None:
    """Groups of both owners, committed at the proxy that lives; what was confirmed is there, and commits continue.

    A separate cluster: a fleet does not mix with the single proxies of the other tests.
    """
    kafka = running.cluster(OLD)
    oracle = CommitTopic(kafka.bootstrap, in_metadata=place != TOPIC)
    fleet = Fleet(running, kafka)
    for name in ("a", "b"):
        fleet.start(name, SETTINGS[place])
    fleet.settled("a", "b")
    a = fleet.fronts["a"].bootstrap
    topic, groups = fresh("topic"), [fresh("group") for _ in range(12)]
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(topic)
    for group in groups:
        commit_at_last(a, group, topic, 10, "ic/1;20-29")
        commit_at_last(fleet.fronts["b"].bootstrap, group, topic, 10, "ic/1;40-49")
    assert all(shown(a, group, topic) == (10, "ic/1;20-29,40-49") for group in groups)
    fleet.fronts["b"].kill()
    began = time.monotonic()
    for group in groups:
        commit_at_last(a, group, topic, 10, "ic/1;30-39,60-60")
    took = time.monotonic() - began
    print(f"all groups commit again {took:.2f} s after kill -9 (session {LEASE_S:g} s)")
    assert took < LEASE_S + 10
    for group in groups:
        assert shown(a, group, topic) == (10, "ic/1;20-49,60-60")
        assert oracle.live(group, topic) == "20-49,60-60"
    fleet.fronts["b"].start()
    fleet.settled("a", "b")
    for group in groups:
        commit_at_last(fleet.fronts["b"].bootstrap, group, topic, 10, "ic/1;10-19")
        assert (oracle.primary(group, topic)[0], oracle.live(group, topic)) == (50, "60-60")
    recreate(kafka.bootstrap, topic)
    for number, group in enumerate(groups):  # at the owner, and at the other proxy
        commit_at_last(fleet.fronts["ab"[number % 2]].bootstrap, group, topic, 2, "ic/1;4-4")
        assert shown(fleet.fronts["ba"[number % 2]].bootstrap, group, topic) == (2, "ic/1;4-4")
        assert (oracle.primary(group, topic)[0], oracle.live(group, topic)) == (2, "4-4")
    oracle.close()
