"""Kafka's own assignors as the judge of ours: seeded cases, and what the Java classes make of them.

`python -m tests.consumer.oracle.assignors` writes golden.txt anew (by hand, at an upgrade; needs a JDK >= 17): of every
case one line with what Java assigned. `... 5000` compares as many cases and writes nothing.

Java may, with claims of several generations, give a partition to an earlier owner that does not subscribe to its topic,
for good (then the case counts as an error of Java) or on the way to another member: 2 of 18,000 cases differ by that.

Members speak to Java, and Java to us, in the bytes that they would send each other in a group.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for entry in (str(ROOT), str(ROOT / "proxy")):
    if entry not in sys.path:
        sys.path.insert(0, entry)

from kafka_share_proxy.consumer.assignors.interface import Assigned, Assignor  # noqa: E402
from kafka_share_proxy.consumer.assignors.range_assignor import RangeAssignor  # noqa: E402
from kafka_share_proxy.consumer.assignors.round_robin_assignor import RoundRobinAssignor  # noqa: E402
from kafka_share_proxy.consumer.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor  # noqa: E402
from kafka_share_proxy.consumer.groups.group_protocol import (  # noqa: E402
    GroupSubscription,
    read_assignment,
    read_subscription,
    write_subscription,
)
from kafka_share_proxy.consumer.partitions import TopicPartition  # noqa: E402
from kafka_share_proxy.localkafka.jars import class_path  # noqa: E402 - found through the path set above
from kafka_share_proxy.localkafka.java import find_java  # noqa: E402

GOLDEN = HERE / "golden.txt"
RELEASES = ("3.9.1", "4.3.0")
CASES = 400
ASSIGNORS: Mapping[str, Assignor] = {
    each.name: each for each in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
TOPICS = ("orders", "payments", "a", "__view.r4.orders", "T9", "missing")


@dataclass(frozen=True, slots=True)
class Case:
    """One group at one moment."""

    assignor: str
    counts: dict[str, int]
    members: dict[str, GroupSubscription]
    racks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Topic -> of each partition the racks of its replicas, a letter each; "-": of a replica in none."""

    def line(self) -> str:
        """Format a case for Assign.java."""
        members = [
            f"{member_id};{each.instance_id or ''};{write_subscription(each).hex()}"
            for member_id, each in self.members.items()
        ]
        topics = ",".join(self._topic(topic, count) for topic, count in self.counts.items())
        return "\t".join([self.assignor, topics, *members])

    def _topic(self, topic: str, count: int) -> str:
        return f"{topic}:{count}:{'/'.join(self.racks[topic])}" if topic in self.racks else f"{topic}:{count}"

    def ours(self) -> Assigned:
        """Return our result for the members as a leader reads them."""
        read = {
            member_id: read_subscription(member_id, write_subscription(each), each.instance_id)
            for member_id, each in self.members.items()
        }
        racks = {
            TopicPartition(topic, number): frozenset(letters) - {"-"}
            for topic, each in self.racks.items()
            for number, letters in enumerate(each)
        }
        return ASSIGNORS[self.assignor].assign(self.counts, read, racks)


def cases(seed: int) -> Iterator[Case]:
    """Yield the cases of one story: a group whose members, subscriptions and partitions change, with every assignor."""
    for name in ASSIGNORS:
        yield from _story(random.Random(f"{seed}-{name}"), name)


ROUNDS = 3


def _story(choose: random.Random, name: str) -> Iterator[Case]:
    counts = {topic: choose.randint(1, choose.choice((3, 9))) for topic in choose.sample(TOPICS[:-1], 3)}
    same = choose.random() < 0.5
    members = {
        _member_id(choose): _member(choose, counts, same) for _ in range(choose.randint(1, choose.choice((6, 6, 40))))
    }
    for generation in range(ROUNDS):
        case = Case(name, dict(counts), dict(members))
        yield case
        members = _later(choose, name, case, generation, choose.random() < 0.3)
        if choose.random() < 0.5:
            members.pop(choose.choice(list(members)))
        for _ in range(choose.randint(0 if members else 1, 2)):
            members[_member_id(choose)] = _member(choose, counts, same)
        grown = choose.choice(list(counts))
        counts[grown] += choose.choice((0, 0, 2))


def _member_id(choose: random.Random) -> str:
    return f"consumer-{choose.randint(1, 3)}-{choose.getrandbits(32):08x}"


def _member(choose: random.Random, counts: Mapping[str, int], same: bool) -> GroupSubscription:
    known = list(counts)
    topics = known if same else choose.sample([*known, "missing"], choose.randint(1, len(known)))
    instance_id = f"i-{choose.getrandbits(32):08x}" if choose.random() < 0.3 else None
    return GroupSubscription(topics=tuple(topics), instance_id=instance_id)


def _later(
    choose: random.Random, name: str, case: Case, generation: int, disorder: bool
) -> dict[str, GroupSubscription]:
    """Return the members when they join again: with what they had, or, in disorder, with what they believe they had."""
    everything = [TopicPartition(topic, number) for topic, count in case.counts.items() for number in range(count)]
    assigned = case.ours()
    subscriptions = {}
    for member_id, subscription in case.members.items():
        had, when = tuple(assigned[member_id]), generation
        if disorder and choose.random() < 0.5:
            had = tuple(choose.sample(everything, choose.randint(0, min(6, len(everything)))))
            when = choose.choice((generation, generation - 1, 3))
        if disorder and choose.random() < 0.2:
            subscription = subscription._replace(topics=tuple(choose.sample(list(case.counts), 2)))
        owned = had if name == "cooperative-sticky" else ()
        data = ASSIGNORS[name].user_data(frozenset(had), when)
        if disorder and choose.random() < 0.1:
            data = choose.choice((None, b"", b"bad"))
        subscriptions[member_id] = subscription._replace(owned=owned, generation=when, user_data=data)
    return subscriptions


def read_response(response: str) -> Assigned | None:
    """Return what Java assigned; None where it failed."""
    if response.startswith("error"):
        return None
    lines = (member.split(";") for member in response.split("\t"))
    return {member_id: list(read_assignment(bytes.fromhex(data)).partitions) for member_id, data in lines}


def is_valid(case: Case, assigned: Assigned) -> bool:
    """Return True if every member has only existing, subscribed partitions, and no partition has two owners."""
    every = [partition for partitions in assigned.values() for partition in partitions]
    expected = all(
        each.topic in case.members[member_id].topics and each.partition < case.counts.get(each.topic, 0)
        for member_id, partitions in assigned.items()
        for each in partitions
    )
    return expected and len(every) == len(set(every)) and assigned.keys() == case.members.keys()


def compact(assigned: Assigned) -> str:
    """Format an assignment for golden.txt: `member orders:0,1 a:2;...`; members and topics in order."""
    return ";".join(" ".join([member_id, *_by_topic(assigned[member_id])]) for member_id in sorted(assigned))


def _by_topic(partitions: list[TopicPartition]) -> list[str]:
    numbers: dict[str, list[str]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(str(partition))
    return [f"{topic}:{','.join(each)}" for topic, each in numbers.items()]


def has_compiler() -> bool:
    """Return True if the Java at hand can run a source file; the one in a wheel cannot."""
    modules = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, timeout=60, check=False)
    return "jdk.compiler" in modules.stdout


def judge(requested: list[Case], release: str) -> list[str]:
    """Return the results of the Java classes of one release, one line each."""
    done = subprocess.run(
        [find_java(), "-XX:TieredStopAtLevel=1", "-cp", class_path(release), str(HERE / "Assign.java")],
        input="".join(case.line() + "\n" for case in requested).encode(),
        capture_output=True,
        check=True,
        timeout=300,
    )
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith(("consumer-", "error "))]
    assert len(lines) == len(requested), f"{len(lines)} answers to {len(requested)} cases"
    return lines


def some_cases(stories: int, first: int = 0) -> list[Case]:
    """Return the cases of this many stories, and then the same in racks."""
    drawn = [case for seed in range(first, first + stories) for case in cases(seed)]
    return drawn + [in_racks(random.Random(f"{first}-{number}"), case) for number, case in enumerate(drawn)]


def in_racks(choose: random.Random, case: Case) -> Case:
    """Return the case with racks for most members and replicas."""
    letters = "abc"[: choose.randint(1, 3)]
    copies = choose.randint(1, len(letters))
    counts = case.counts if choose.random() < 0.6 else dict.fromkeys(case.counts, max(case.counts.values()))
    racks = {
        topic: ["".join(choose.sample(letters, copies)) if choose.random() < 0.9 else "-" for _ in range(count)]
        for topic, count in counts.items()
    }
    members = {
        name: each._replace(rack=choose.choice(letters + "z") if choose.random() < 0.8 else None)
        for name, each in case.members.items()
    }
    return Case(case.assignor, counts, members, racks)


def main() -> None:
    """Write golden.txt, or compare."""
    stories = int(sys.argv[1]) if sys.argv[1:] else CASES // (ROUNDS * len(ASSIGNORS))
    requested = some_cases(stories)
    lines, parted, failed = [], 0, 0
    for case, response in zip(requested, judge(requested, RELEASES[-1]), strict=True):
        theirs, ours = read_response(response), case.ours()
        wrong = theirs is None or not is_valid(case, theirs)
        lines.append("error" if theirs is None or wrong else compact(theirs))
        failed += wrong
        if not is_valid(case, ours) or (not wrong and compact(ours) != lines[-1]):
            parted += 1
            print(f"{case}\n  java {lines[-1]}\n  ours {compact(ours)}")
    if not sys.argv[1:]:
        GOLDEN.write_text("\n".join(lines) + "\n")
    print(f"{len(requested)} cases; {parted} differ; in {failed} Java itself fails or assigns what nobody wanted")


if __name__ == "__main__":
    main()
