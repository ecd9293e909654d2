"""Measure the cost of idle groups for a busy one: `python -m tests.bench.idle_groups [--groups 10000] [--partitions
10]`.

Two worlds of the share room in one process, with a broker of a few lines: in one the busy group is alone, in the other
there are this many idle groups with this many share partitions each. Both do the same in turns: a ShareFetch that
accepts what the last one acquired and acquires the next record, and time that passes. Printed is the CPU of one such
request in either world, and the ratio of the two, which is to stay within 10 %.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from kafka_share_proxy.sharegroups.model.coordinator import ShareKey

from tests.bench.share_engine import resident_bytes
from tests.support.ports import Member, World, acquired
from tests.support.scripted_cluster import Topic

ROUNDS = 5
REQUESTS = 2000
TURN = 100
"""Requests of one world before it is the other's turn."""
RECORDS = 500
"""Records of each log batch."""
BOUND = 1.1


class Busy:
    """One world with one member that is never done."""

    def __init__(self) -> None:
        self.world = World()
        self.world.configure("busy", share_auto_offset_reset="earliest")
        self.topic: Topic = self.world.cluster.create("t")
        self.member: Member = self.world.member("busy")
        self.member.heartbeat(0, ["t"])
        self.last: tuple[int, int, int] | None = None

    def idle(self, groups: int, partitions: int) -> int:
        """Hold this many unused groups. Return the resident bytes of all of it."""
        coordinator, before = self.world.services.coordinator, resident_bytes()
        topic_ids = [n.to_bytes(16, "big") for n in range(1, 101)]
        for number in range(groups):
            group_id = f"idle-group-{number}"
            coordinator.add_group(group_id)
            for partition in range(partitions):
                key = ShareKey(group_id, topic_ids[number % len(topic_ids)], partition)
                coordinator.rest(key, coordinator.new_partition(key, 100_000 + number).snapshot().encode())
        return resident_bytes() - before

    def round(self, requests: int = REQUESTS) -> float:
        """CPU seconds of one request."""
        self.world.cluster.produce(self.topic, requests)
        started = time.process_time()
        for _ in range(requests):
            acks = {} if self.last is None else {(self.topic.topic_id, 0): [(self.last[0], self.last[1], [1])]}
            topics = [self.topic] if self.member.epoch == 0 else []
            response = self.member.fetch(*topics, acks=acks, max_records=1, batch_size=1, share_acquire_mode=1)
            self.last = acquired(response)[0]
            self.world.timers.advance(0.01)
        return (time.process_time() - started) / requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=10, help="share partitions of each idle group")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    alone, crowded = Busy(), Busy()
    used = crowded.idle(arguments.groups, arguments.partitions)
    print(
        f"{arguments.groups:,} idle groups, {arguments.groups * arguments.partitions:,} idle share partitions: "
        f"{used / 1e6:.1f} MB"
    )
    alone.round()
    crowded.round()
    rounds = [in_turns(alone, crowded) for _ in range(ROUNDS)]
    without, with_idle = (statistics.median(each) for each in zip(*rounds, strict=True))
    ratio = statistics.median(crowded_s / alone_s for alone_s, crowded_s in rounds)
    print(f"alone   {without * 1e6:8.1f} us a request\ncrowded {with_idle * 1e6:8.1f} us a request")
    print(f"ratio   {ratio:8.3f}    bound {BOUND}")
    raise SystemExit(ratio > BOUND)


def in_turns(alone: Busy, crowded: Busy) -> tuple[float, float]:
    """One round of both, in small turns: what else the machine does meanwhile falls on both alike."""
    turns = [(alone.round(TURN), crowded.round(TURN)) for _ in range(REQUESTS // TURN)]
    return statistics.mean(each for each, _ in turns), statistics.mean(each for _, each in turns)


if __name__ == "__main__":
    main()
