"""Measure the standstill of a share group when a broker that it does not read from is lost.

    tests/soak/lost [--release 4.3.0] [--how kill] [--how stop] [--only coordinator] [--only state] [--only asked]

Three brokers and the proxy. One member takes and acknowledges one record after the other; the partition it reads is
led by a broker that stays. The lost broker is, each in a separate run:

- coordinator: the one that coordinates the group of proxies, on which the proxy's lease depends;
- state: the leader of the group's state partition;
- asked: the one to which the proxy sends requests that any broker can serve.

`kill` ends it (SIGKILL): its peers see their connections close. `stop` (SIGSTOP) simulates a lost machine or network:
connections stay open, and nothing arrives. The broker continues at the end (SIGCONT), which must change nothing.

The brokers miss it after 9 s (broker.session.timeout.ms). Printed is what happened when, in seconds after the loss.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "proxy"))

from kafka_share_proxy.durable.ownership_rules import GROUP as PROXIES
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.localkafka.cluster import Cluster, Node
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE

from tests.soak.rolling import BROKERS
from tests.support.brokers import NEW
from tests.support.raw import Raw, Topic, until
from tests.support.worlds import ACCEPT, RECORD_LIMIT, Member, World

RECORDS = 400
CALM_S = 4.0
"""Before the loss, so that everything is opened that will be kept."""
LONGEST_S = 45.0
"""How long the group may stand still."""
AFTER_S = 5.0
"""How long the group must continue afterwards, and again when the broker is back."""
LOOK_S = 0.02
PAUSE_S = 0.05


@dataclass
class Story:
    """Events with their times, in seconds after the loss."""

    since: float = 0.0
    led: float | None = None
    """Other brokers led everything that the proxy needs."""
    refused: list[tuple[float, str]] = field(default_factory=list)
    """Why the proxy did not serve, from then on; empty: it did."""
    settled: list[tuple[float, float]] = field(default_factory=list)
    """Times at which each record was acknowledged, and confirmed as settled."""
    failed: list[tuple[float, str]] = field(default_factory=list)
    cpu_share: float = 0.0
    """Share of a core that the proxy used from the loss until recovery."""
    problem: str = ""

    def now(self) -> float:
        return time.monotonic() - self.since

    @property
    def ready(self) -> float:
        """Return the time from which on the proxy served without interruption."""
        return max((at for at, why in self.refused if not why), default=0.0)

    def gap(self) -> tuple[float, float]:
        """The longest time without a settled record, and when it ended."""
        ends = [0.0, *(at for _, at in self.settled if at > 0)]
        return max(((later - sooner, later) for sooner, later in pairwise(ends)), default=(0.0, 0.0))


class Run:
    """One loss."""

    def __init__(self, kafka: Cluster, how: str, folder: Path) -> None:
        self._kafka, self._how, self._folder = kafka, how, folder
        self._enough = threading.Event()
        self._threads: list[threading.Thread] = []
        self.story = Story()

    def play(self, lost: str) -> Story:
        with Raw(self._kafka.bootstrap) as raw:
            coordinator = until(lambda: _coordinator(raw), "a coordinator")
        requested, third = (node for node in self._kafka.nodes if node.node_id != coordinator)
        by_role = {"coordinator": self._kafka.node(coordinator), "state": third, "asked": requested}
        victim = by_role[lost]
        stays = next(node for node in (requested, third) if node is not victim)
        first = sorted(self._kafka.nodes, key=lambda node: node is not requested)
        upstream = ",".join(node.address for node in first)
        with Front(upstream, self._folder, {"share_groups": {"serve": "local"}}) as front:
            member, topic = self._member(front, stays, victim, is_state=lost == "state")
            self._lose(front, member, topic, victim, stays)
            if self.story.problem:
                print(front.output())
        return self.story

    def _member(self, front: Front, stays: Node, victim: Node, *, is_state: bool) -> tuple[Member, Topic]:
        with Raw(stays.address) as raw:
            state = until(lambda: raw.topic(SHARE_STATE.topic), "the state topic")
            topic = raw.create_topic("lost", assignments={0: [stays.node_id]})
            raw.produce(topic, *[1] * RECORDS)
        group = next(
            name
            for name in (f"g{number}" for number in range(1000))
            if (state.leaders[state_partition(name)] == victim.node_id) == is_state
        )
        world = World("lost", front.bootstrap, "lost")
        world.raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
        member = Member(world, group, "member-of-the-lost", stays.node_id)
        member.join([topic])
        return member, topic

    def _lose(self, front: Front, member: Member, topic: Topic, victim: Node, stays: Node) -> None:
        story = self.story
        story.since = time.monotonic()
        self._begin(lambda: self._settle(member, topic))
        self._begin(lambda: self._observe(front))
        time.sleep(CALM_S)
        story.since, before = time.monotonic(), story.since
        story.settled[:] = [(sent - (story.since - before), at - (story.since - before)) for sent, at in story.settled]
        story.refused.clear()
        cpu_s = _cpu_s(front)
        with _lost(victim, self._how):
            self._until_settled(stays, victim)
            story.cpu_share = (_cpu_s(front) - cpu_s) / story.now()
        time.sleep(AFTER_S)
        self._enough.set()
        for thread in self._threads:
            thread.join()

    def _begin(self, target: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=target, daemon=True))
        self._threads[-1].start()

    def _until_settled(self, stays: Node, victim: Node) -> None:
        story, moved = self.story, False
        with Raw(stays.address) as raw:
            while story.now() < LONGEST_S:
                if not moved and _led_by_others(raw, victim):
                    story.led, moved = story.now(), True
                if (
                    moved
                    and story.settled
                    and story.settled[-1][0] > (story.led or 0)
                    and not (story.refused and story.refused[-1][1])
                ):
                    time.sleep(AFTER_S)
                    return
                time.sleep(LOOK_S)
        story.problem = f"nothing was settled for {LONGEST_S:g} s"

    def _observe(self, front: Front) -> None:
        failure = ""
        while not self._enough.wait(LOOK_S):
            ready, text = front.send_request("/readyz/share-groups")
            why = "" if ready else text
            if bool(why) != bool(failure):
                self.story.refused.append((self.story.now(), why))
            failure = why

    def _settle(self, member: Member, topic: Topic) -> None:
        """Settle one record after the other, and note each failure."""
        story = self.story
        while not self._enough.wait(PAUSE_S):
            sent = story.now()
            try:
                failure = self._settle_one(member, topic, sent)
            except OSError as error:
                failure = str(error)
                member.disconnect()
                member.epoch = 0
            if failure:
                story.failed.append((story.now(), failure))

    def _settle_one(self, member: Member, topic: Topic, sent: float) -> str:
        """Return the error code of the responses, or an empty string."""
        response = member.fetch((topic, 0), records=1, batch=1, mode=RECORD_LIMIT, silent=True)
        code = response.error or response.code(topic)
        if response.error:
            member.epoch = 0
        if acquired := response.acquired(topic):
            result = member.acknowledge((topic, 0, *acquired[0][:2], ACCEPT), silent=True)
            code = result.error or result.code(topic)
            if not code:
                self.story.settled.append((sent, self.story.now()))
        return str(code) if code else ""


@contextmanager
def _lost(victim: Node, how: str) -> Iterator[None]:
    if how == "kill":
        victim.kill()
        yield
        return
    victim.suspend()
    try:
        yield
    finally:
        victim.resume()


def _cpu_s(front: Front) -> float:
    """Return the proxy's CPU seconds so far."""
    assert front.child is not None
    user, system = Path(f"/proc/{front.child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _coordinator(raw: Raw) -> int | None:
    coordinator = raw.send_request("FindCoordinator", 4, key_type=0, coordinator_keys=[PROXIES]).coordinators[0]
    return None if coordinator.error_code else int(coordinator.node_id)


def _led_by_others(raw: Raw, victim: Node) -> bool:
    names = ["__consumer_offsets", SHARE_STATE.topic]
    response = raw.send_request(
        "Metadata", 12, topics=[{"name": name} for name in names], allow_auto_topic_creation=False
    )
    leaders = {each.leader_id for topic in response.topics for each in topic.partitions}
    return not leaders & {-1, victim.node_id}


LOSSES = ("coordinator", "state", "asked")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", default=NEW)
    parser.add_argument("--how", choices=("kill", "stop"), action="append", help="may be repeated")
    parser.add_argument("--only", choices=LOSSES, action="append", help="may be repeated")
    arguments = parser.parse_args()
    failed = False
    for lost in arguments.only or LOSSES:
        for how in arguments.how or ("kill", "stop"):
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                with Cluster(arguments.release, folder / "kafka", **BROKERS) as kafka:
                    failed |= _reported(lost, how, Run(kafka, how, folder / "proxy").play(lost))
    raise SystemExit(failed)


def _reported(lost: str, how: str, story: Story) -> bool:
    length, end = story.gap()
    led = "never" if story.led is None else f"{story.led:.2f}"
    print(
        f"{lost:>11} {how}: led by others +{led}, served +{story.ready:.2f}, settled +{end:.2f} after {length:.2f} s, "
        f"{len(story.settled)} settled, {len(story.failed)} failed {story.failed[:3]}, "
        f"{story.cpu_share:.1%} of a core",
        flush=True,
    )
    return bool(story.problem)


if __name__ == "__main__":
    main()
