"""Records finished in any order on worker threads, each committed by itself: kafka-python.

    python individual_commits_kafka_python.py BOOTSTRAP TOPIC GROUP [WORK_S_MAX]

Needs kafka-python and kafka-share-proxy. Each record says how many seconds its work takes ("0.2"); WORK_S_MAX cuts that
short. Kill it at any time and start it again: finished and committed records are skipped, even after a record that
takes for ever. It prints the partition and offset of each record that it begins to work on.
"""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from kafka_share_proxy import BROKER_METADATA_MAX, OffsetLedger

WORKERS = 8
UNFINISHED_MAX = 1000
"""Maximum number of unfinished records. At that number reading pauses."""
COMMIT_S = 0.2
POLL_MS, JOINING_POLL_MS = 50, 1000
"""While it joins, a poll waits for longer: where one ends while the coordinator is looked up, kafka-python 3.0.12 may
wait for that look-up for ever."""
SESSION_MS = 6000
"""Others get the partitions of a member that died after this time."""
TEXT_MAX = BROKER_METADATA_MAX
"""Maximum number of characters that brokers accept. None with a kafka-share-proxy that serves individual commits: no
limit.
"""


class Worked(ConsumerRebalanceListener):
    """One member of the group: this thread polls and commits, others work."""

    def __init__(self, bootstrap: str, topic: str, group: str, work_s_max: float) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 3,
            isolation_level="read_committed",
        )
        self._consumer.subscribe([topic], listener=self)
        self._work_s_max = work_s_max
        self._ledgers: dict[TopicPartition, OffsetLedger] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._finished: queue.SimpleQueue = queue.SimpleQueue()
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
            timeout_ms = POLL_MS if self._consumer.assignment() else JOINING_POLL_MS
            for place, records in self._consumer.poll(timeout_ms=timeout_ms).items():
                self._take(place, records)
            if time.monotonic() >= due:
                self._settle_and_commit()
                due = time.monotonic() + COMMIT_S
        self._settle_and_commit()
        self._consumer.close()

    def _take(self, place: TopicPartition, records: list[ConsumerRecord]) -> None:
        ledger = self._ledgers.get(place)
        if ledger is None:  # newly assigned; a rebalance listener of this client may not query brokers
            committed = self._consumer.committed(place, metadata=True)
            ledger = OffsetLedger.from_committed(*(committed[:2] if committed else (None, None)))
            self._ledgers[place] = ledger
        for record in records:
            if ledger.delivered(record.offset):  # else it was finished before a restart
                self._tasks.put((ledger, record))

    def _hold_back(self) -> None:
        """The member keeps polling, so that it stays in the group, but gets no records."""
        if sum(ledger.outstanding for ledger in self._ledgers.values()) >= UNFINISHED_MAX:
            self._consumer.pause(*self._consumer.assignment())
        else:
            self._consumer.resume(*self._consumer.paused())

    def _work(self) -> None:
        while True:
            ledger, record = self._tasks.get()
            print(f"begin {record.partition} {record.offset}\n", end="", flush=True)
            time.sleep(min(float(record.value), self._work_s_max))  # the work
            self._finished.put((ledger, record.offset))

    def _settle(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the new commits."""
        while not self._finished.empty():
            ledger, offset = self._finished.get()  # the ledger may be one of a partition that was revoked
            ledger.done(offset)
        states = {
            place: OffsetAndMetadata(ledger.offset, ledger.text(TEXT_MAX), -1)
            for place, ledger in self._ledgers.items()
        }
        return {place: state for place, state in states.items() if state != self._committed.get(place)}

    def _settle_and_commit(self) -> None:
        offsets = self._settle()
        try:
            if offsets:
                self._consumer.commit(offsets)
            self._committed.update(offsets)
        except KafkaError as error:  # the group rebalances: commit again later, or leave it to the next owner
            print(f"not committed: {error}", file=sys.stderr)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Nothing: the first record of a partition begins its ledger."""

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Called within poll, before others get the partitions; the commit is sent before this member says so."""
        if offsets := self._settle():
            self._consumer.commit_async(offsets)
        self.on_partitions_lost(revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Called within poll, when others may have the partitions already."""
        for place in lost:
            self._ledgers.pop(place, None)
            self._committed.pop(place, None)


def main() -> None:
    """Run as a command."""
    bootstrap, topic, group, *rest = sys.argv[1:]
    worked = Worked(bootstrap, topic, group, float(rest[0]) if rest else float("inf"))
    signal.signal(signal.SIGTERM, worked.stop)
    signal.signal(signal.SIGINT, worked.stop)
    worked.run()


if __name__ == "__main__":
    main()
