"""Records finished in any order on worker threads, each committed by itself: confluent-kafka.

    python individual_commits_confluent.py BOOTSTRAP TOPIC GROUP [WORK_S_MAX]

Needs confluent-kafka and kafka-share-proxy. Each record says how many seconds its work takes ("0.2"); WORK_S_MAX cuts
that short. Kill it at any time and start it again: finished and committed records are skipped, even after a record that
takes for ever. It prints the partition and offset of each record that it begins to work on.

Several members share one partition through a kafka-share-proxy: with TOPIC `__view.s4.orders` (see `kafka-share-proxy
views create`) each partition of orders is divided between four of them, in stripes of 64 offsets. A member that gives a
partition to another one finishes first what it has begun there, so no record is worked on by two.
"""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from kafka_share_proxy import BROKER_METADATA_MAX, OffsetLedger

WORKERS = 8
UNFINISHED_MAX = 1000
"""Maximum number of unfinished records. At that number reading pauses."""
COMMIT_S = 0.2
DRAIN_S = 5.0
"""Seconds to wait for work on a partition that moves to another member."""
SESSION_MS = 6000
"""Others get the partitions of a member that died after this time."""
TEXT_MAX = BROKER_METADATA_MAX
"""Maximum number of characters that brokers accept. None with a kafka-share-proxy that serves individual commits: no
limit.
"""

Place = tuple[str, int]


class Owned:
    """A partition for as long as this member has it."""

    def __init__(self, ledger: OffsetLedger) -> None:
        self.ledger = ledger
        self.is_revoked = False
        self.in_work = 0
        """Records that are being worked on."""


def work(message: Message, work_s_max: float) -> None:
    """Process one record."""
    print(f"begin {message.partition()} {message.offset()}\n", end="", flush=True)
    time.sleep(min(float(message.value()), work_s_max))


class Worked:
    """One member of the group: this thread polls and commits, others work."""

    def __init__(self, bootstrap: str, topic: str, group: str, work_s_max: float) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self._work_s_max = work_s_max
        self._owned: dict[Place, Owned] = {}
        self._committed: dict[Place, tuple[int | None, str]] = {}
        self._tasks: queue.SimpleQueue[tuple[Owned, Message]] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[tuple[Owned, int]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopping = False
        for _ in range(WORKERS):
            threading.Thread(target=self._work, daemon=True).start()

    def stop(self, *_: object) -> None:
        """Commit and leave the group; what is being worked on is begun again by the next owner."""
        self._stopping = True

    def run(self) -> None:
        """Until it is stopped."""
        due = time.monotonic()
        while not self._stopping:
            self._hold_back()
            for message in self._consumer.consume(100, 0.05):
                self._take(message)
            if time.monotonic() >= due:
                self._settle_and_commit()
                due = time.monotonic() + COMMIT_S
        self._settle_and_commit()
        self._consumer.close()

    def _take(self, message: Message) -> None:
        if message.error():
            print(f"error: {message.error()}", file=sys.stderr)
            return
        owned = self._owned.get((message.topic(), message.partition()))  # None: just revoked, another one has it
        if owned and owned.ledger.delivered(message.offset()):  # False: it was finished before a restart
            self._tasks.put((owned, message))

    def _hold_back(self) -> None:
        """The member keeps polling, so that it stays in the group, but gets no records."""
        assigned = self._consumer.assignment()
        if sum(owned.ledger.outstanding for owned in self._owned.values()) >= UNFINISHED_MAX:
            self._consumer.pause(assigned)
        else:
            self._consumer.resume(assigned)

    def _work(self) -> None:
        while True:
            owned, message = self._tasks.get()
            with self._lock:
                if owned.is_revoked:
                    continue  # another member has it
                owned.in_work += 1
            work(message, self._work_s_max)
            self._finished.put((owned, message.offset()))
            with self._lock:
                owned.in_work -= 1

    def _settle_and_commit(self) -> None:
        while not self._finished.empty():
            owned, offset = self._finished.get()  # it may have been revoked meanwhile
            owned.ledger.done(offset)
        ledgers = {place: owned.ledger for place, owned in self._owned.items()}
        states = {place: (ledger.offset, ledger.text(TEXT_MAX)) for place, ledger in ledgers.items()}
        new = {place: state for place, state in states.items() if state != self._committed.get(place)}
        offsets = [TopicPartition(*place, offset, text) for place, (offset, text) in new.items() if offset is not None]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._committed.update(new)
        except KafkaException as error:  # the group rebalances: commit again later, or leave it to the next owner
            print(f"not committed: {error}", file=sys.stderr)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in consumer.committed(partitions, 30.0):
            ledger = OffsetLedger.from_committed(place.offset, place.metadata)
            self._owned[place.topic, place.partition] = Owned(ledger)
        consumer.incremental_assign(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._drain([self._owned[place.topic, place.partition] for place in partitions])
        self._settle_and_commit()
        self._lost(consumer, partitions)

    def _drain(self, going: list[Owned]) -> None:
        """Begin nothing more of these, and wait until what was begun is finished."""
        with self._lock:
            for owned in going:
                owned.is_revoked = True
        end = time.monotonic() + DRAIN_S
        while any(owned.in_work for owned in going) and time.monotonic() < end:
            time.sleep(0.01)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            if owned := self._owned.pop((place.topic, place.partition), None):
                owned.is_revoked = True
            self._committed.pop((place.topic, place.partition), None)


def main() -> None:
    """Run as a command."""
    bootstrap, topic, group, *rest = sys.argv[1:]
    worked = Worked(bootstrap, topic, group, float(rest[0]) if rest else float("inf"))
    signal.signal(signal.SIGTERM, worked.stop)
    signal.signal(signal.SIGINT, worked.stop)
    worked.run()


if __name__ == "__main__":
    main()
