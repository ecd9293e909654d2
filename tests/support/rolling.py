"""A share group at work while the brokers of its cluster are ended in turn and started again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.localkafka.cluster import Cluster, Node
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE

from tests.support.raw import Raw, until
from tests.support.rolling_times import Changes, Lookout
from tests.support.settlements import Ledger, Place, gaps
from tests.support.share_members import ShareMember

GROUP, TOPIC = "rolling", "rolling"
COORDINATORS, OF_GROUP, OF_PROXIES = "__consumer_offsets", 0, 2
"""Partitions for GROUP and for the group of proxies: the hash of the id mod 3, as `localkafka` has it."""
PROXY_STATE = [(SHARE_STATE.topic, state_partition(GROUP))]
NATIVE_STATE = [("__share_group_state", partition) for partition in range(3)]
IN_SYNC_S = 60.0
"""Maximum seconds until a restarted broker is in sync for every partition."""
FLUSH_S = 120.0
REPORT_S = 10.0
"""How long members may take to hear that what they accepted is settled, once it is."""
FAULTS_SHOWN = 20
PAUSE_S = 0.1
SLICE_S = 0.02
"""How long the producer sleeps between two portions of records."""


@dataclass(frozen=True)
class Plan:
    """Actions on the cluster, and the work of the group."""

    seconds: float = 180.0
    """How long brokers are ended and started."""
    every_s: float = 10.0
    """Between the ends of two brokers."""
    in_sync: bool = True
    """True if a broker is stopped only when the previous one is in sync for every partition, however long that takes.
    """
    restarts_min: int = 1
    """Minimum number of stopped brokers, however long that takes."""
    down_s: float = 2.0
    """Between the end of a broker and its start."""
    crashed_s: float = 2.0
    """The same after SIGKILL, or until it continues after SIGSTOP."""
    crash: str = "SIGKILL"
    """How every other broker is lost: by SIGKILL, or by SIGSTOP as a machine is whose network is cut."""
    rate: int = 500
    """Records a second."""
    partitions: int = 6
    members: int = 4
    settle_s: float = 120.0
    """Maximum seconds for the group to settle at the end: a lock of 30 s that is not released, and a margin."""


@dataclass(frozen=True)
class Ended:
    """A broker that was ended."""

    at: int
    node_id: int
    signal: str


@dataclass(frozen=True)
class Gap:
    """Consequences of stopping a broker."""

    ended: Ended
    from_s: float
    """When the time without a settled record began, in seconds of the run."""
    settled_s: float
    """The longest time without any settled record."""
    produced_s: float
    """The longest time in which brokers confirmed no record to the producer."""
    times: dict[str, float]
    """Times of events, in seconds after the broker stopped."""


@dataclass
class Outcome:
    """Result of the run."""

    ledger: Ledger = field(default_factory=Ledger)
    produced: dict[str, Place] = field(default_factory=dict)
    produced_at: list[int] = field(default_factory=list)
    """When brokers confirmed them."""
    ended: list[Ended] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    since: int = 0
    """When the first broker was to be ended: the group worked by then."""
    until: int = 0
    """When the last record was produced."""
    drained_s: float = 0.0
    """Seconds from then until nothing was left."""
    problems: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        return [*self.problems, *self.ledger.faults(self.produced)]

    def longest_gap_s(self) -> float:
        """The longest time without any settled record."""
        return self.ledger.gaps(self.since, self.until)[0][0] / 1e9

    def longest_after_s(self) -> float:
        """Return the longest time from when the cluster missed a broker that crashed to the next settled record."""
        crashes = [gap.times for gap in self.gaps() if gap.ended.signal != "SIGTERM"]
        return max((t["settled"] - t["missed"] for t in crashes if t.keys() >= {"settled", "missed"}), default=0.0)

    def gaps(self) -> Iterator[Gap]:
        """Yield the longest times after the end of each broker."""
        ends = [*(ended.at for ended in self.ended[1:]), self.until]
        for ended, end in zip(self.ended, ends, strict=True):
            length, begin = self.ledger.gaps(ended.at, end)[0]
            produced = gaps(self.produced_at, ended.at, end)[0][0]
            times = {event: (at - ended.at) / 1e9 for event, at in self._times(ended, end) if at is not None}
            yield Gap(ended, (begin - self.since) / 1e9, length / 1e9, produced / 1e9, times)

    def _times(self, ended: Ended, end: int) -> Iterator[tuple[str, int | None]]:
        """Yield what happened when, until another broker was ended."""
        changes, node_id, since = self.changes, ended.node_id, ended.at
        missed = changes.missed(node_id, since, end)
        yield "missed", missed
        for event in changes.moved:
            yield f"{event} led", changes.moved_away(node_id, event, since, end)
        refused = changes.refused(since, end) or (None, None)
        yield from zip(("without a lease", "with a lease"), refused, strict=True)
        deliveries = (each.at for all_of in self.ledger.deliveries.values() for each in all_of)
        settled = (each.at for all_of in self.ledger.confirmed.values() for each in all_of)
        for event, moments in ("produced", self.produced_at), ("delivered", deliveries), ("settled", settled):
            yield event, min((at for at in moments if (missed or since) <= at < end), default=None)


class Producing:
    """Producer of records with unique values, at a steady rate, until stopped."""

    def __init__(self, bootstrap: str, plan: Plan, outcome: Outcome) -> None:
        self._plan, self._outcome = plan, outcome
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer(settings)
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return once every record is confirmed by the brokers."""
        self._enough.set()
        self._thread.join(FLUSH_S)
        if unsent := self._producer.flush(FLUSH_S):
            self._outcome.problems.append(f"{unsent} records could not be produced")

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._enough.is_set():
            target = int((time.monotonic() - began) * self._plan.rate)
            for number in range(sent, target):
                self._producer.produce(
                    TOPIC, str(number), partition=number % self._plan.partitions, on_delivery=self._delivered
                )
            sent = max(sent, target)
            self._producer.poll(SLICE_S)

    def _delivered(self, error: Any, message: Any) -> None:
        record = message.value().decode()
        if error is None:
            self._outcome.produced_at.append(time.monotonic_ns())
            self._outcome.produced[record] = (message.partition(), message.offset())
        else:
            self._outcome.problems.append(f"record {record} could not be produced: {error}")


class Rolling:
    """One run: members on `bootstrap`, which may be a proxy for the cluster.

    The producer connects to the brokers themselves: its stalls are theirs.
    """

    def __init__(
        self, cluster: Cluster, bootstrap: str, folder: Path, plan: Plan, refusal: Callable[[], str] | None = None
    ) -> None:
        """`refusal`: why the proxy serves no share groups at this moment; empty while it does."""
        self._cluster, self._bootstrap, self._folder, self._plan = cluster, bootstrap, folder, plan
        self._refusal = refusal
        self._members: list[ShareMember] = []
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Play the plan; what went wrong is in the outcome."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with Raw(self._bootstrap) as raw:
            raw.create_topic(TOPIC, self._plan.partitions, {"min.insync.replicas": "2"})
            raw.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        names = [f"member-{number}" for number in range(1, self._plan.members + 1)]
        self._members = [ShareMember(name, self._bootstrap, GROUP, TOPIC, self._folder) for name in names]
        try:
            self._play()
        except TimeoutError as error:
            self.outcome.problems.append(str(error))
        finally:
            for member in self._members:
                member.child.kill()
        return self.outcome

    def _play(self) -> None:
        producing = Producing(self._cluster.bootstrap, self._plan, self.outcome)
        try:
            until(self._all_work, "every member to settle records", self._plan.settle_s)
            with Lookout(self._cluster, self._led(), self._refusal) as lookout:
                self.outcome.since, self.outcome.changes = time.monotonic_ns(), lookout.changes
                self._restart_brokers()
        finally:
            producing.stop()
            self.outcome.until = time.monotonic_ns()
        until(self._nothing_is_left, "the group to settle everything", self._plan.settle_s, PAUSE_S)
        self.outcome.drained_s = (time.monotonic_ns() - self.outcome.until) / 1e9
        with suppress(TimeoutError):  # then the ledger says what is not settled
            until(self._all_reported, "members to hear of it", REPORT_S)

    def _led(self) -> dict[str, list[tuple[str, int]]]:
        """Return the partitions that need another leader when a broker is gone."""
        return {
            "records": [(TOPIC, partition) for partition in range(self._plan.partitions)],
            "state": PROXY_STATE if self._refusal else NATIVE_STATE,
            "group": [(COORDINATORS, OF_GROUP)],
            "proxies": [(COORDINATORS, OF_PROXIES)],
        }

    def _all_work(self) -> bool:
        self._listen()
        working = {delivery.member for each in self.outcome.ledger.confirmed.values() for delivery in each}
        return len(working) == self._plan.members

    def _listen(self) -> None:
        for member in self._members:
            if member.child.status is not None:
                raise TimeoutError(f"{member.name} ended by itself: {member.child.output()}")
            member.listen(self.outcome.ledger)

    # Brokers

    def _restart_brokers(self) -> None:
        """Restart the brokers in rotation, alternately by SIGTERM and as a crash.

        With three of them, each is stopped in both ways.
        """
        end, number = time.monotonic() + self._plan.seconds, 0
        while time.monotonic() < end or number < self._plan.restarts_min:
            next_at = time.monotonic() + self._plan.every_s
            self._restart(
                self._cluster.nodes[number % len(self._cluster.nodes)], ("SIGTERM", self._plan.crash)[number % 2]
            )
            while time.monotonic() < next_at:
                self._listen()
                time.sleep(PAUSE_S)
            number += 1
            if self._plan.in_sync:
                until(self._in_sync, "every broker to be in sync", IN_SYNC_S)
        until(self._in_sync, "every broker to be in sync", IN_SYNC_S)

    def _restart(self, node: Node, signal: str) -> None:
        self.outcome.ended.append(Ended(time.monotonic_ns(), node.node_id, signal))
        end, back, down_s = {
            "SIGTERM": (node.stop, node.start, self._plan.down_s),
            "SIGKILL": (node.kill, node.start, self._plan.crashed_s),
            "SIGSTOP": (node.suspend, node.resume, self._plan.crashed_s),
        }[signal]
        end()
        time.sleep(down_s)
        back()

    def _in_sync(self) -> bool:
        """True if every broker serves, and says that every partition is led and has all its replicas in sync.

        Each is queried: for seconds after a crash the others, and their last known state, show it as alive.
        """
        self._listen()
        return all(_sees_all_in_sync(node) for node in self._cluster.nodes)

    # The end

    def _all_reported(self) -> bool:
        self._listen()
        return not any(self.outcome.ledger.never_settled(self.outcome.produced))

    def _nothing_is_left(self) -> bool:
        """True if the group's lag is 0, by the group itself."""
        self._listen()
        with suppress(OSError, TimeoutError), Raw(self._bootstrap) as raw:
            response = raw.send_request(
                "DescribeShareGroupOffsets", 1, on=raw.on_coordinator(GROUP),
                groups=[{"group_id": GROUP, "topics": None}],
            ).groups[0]  # fmt: skip
            parts = [part for topic in response.topics for part in topic.partitions]
            known = not response.error_code and not any(part.error_code for part in parts)
            return known and len(parts) == self._plan.partitions and all(part.lag == 0 for part in parts)
        return False


def _sees_all_in_sync(node: Node) -> bool:
    try:
        with Raw(node.address) as raw:
            response = raw.send_request("Metadata", 12, topics=None, allow_auto_topic_creation=False)
    except OSError:
        return False
    partitions = [each for topic in response.topics for each in topic.partitions]
    return all(each.leader_id >= 0 and set(each.isr_nodes) == set(each.replica_nodes) for each in partitions)


def report(name: str, outcome: Outcome) -> None:
    """Print what happened."""
    ledger = outcome.ledger
    again = sum(len(each) - 1 for each in ledger.deliveries.values())
    failed = Counter(delivery.error for each in ledger.failed.values() for delivery in each)
    print(f"\n{name}: {len(outcome.produced):,} records, {len(ledger.confirmed):,} settled, {again:,} delivered again")
    otherwise = ledger.rejected_acceptances(outcome.produced)
    unheard = ledger.never_reported(outcome.produced)
    print(f"  settled though no member heard so: {unheard:,}, of which it was told otherwise of {len(otherwise):,}")
    for each in otherwise[:FAULTS_SHOWN]:
        print(f"    {each}")
    print(f"  late from the buffer of a client, and refused: {sum(1 for _ in ledger.late()):,}")
    print(f"  acknowledgements not confirmed: {dict(failed)}")
    print(f"  calls that failed: {dict(ledger.errors.most_common(5))}")
    for gap in outcome.gaps():
        print(
            f"  {(gap.ended.at - outcome.since) / 1e9:6.1f} s  broker {gap.ended.node_id} {gap.ended.signal}: "
            f"{gap.settled_s:5.2f} s without a settled record, from {gap.from_s:.1f} s; "
            f"{gap.produced_s:5.2f} s without a produced one"
        )
        print("            " + ", ".join(f"{event} +{seconds:.2f}" for event, seconds in gap.times.items()))
    print(f"  nothing left {outcome.drained_s:.1f} s after the last record was produced")
    print(f"  longest time without a settled record: {outcome.longest_gap_s():.2f} s", flush=True)
    for fault in outcome.faults()[:FAULTS_SHOWN]:
        print(f"  WRONG: {fault}")
