"""Records finished in any order by tasks, each committed by itself: aiokafka.

    python individual_commits_aiokafka.py BOOTSTRAP TOPIC GROUP [WORK_S_MAX]

Needs aiokafka and kafka-share-proxy. Each record says how many seconds its work takes ("0.2"); WORK_S_MAX cuts that
short. Kill it at any time and start it again: finished and committed records are skipped, even after a record that
takes for ever. It prints the partition and offset of each record that it begins to work on.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from kafka_share_proxy import BROKER_METADATA_MAX, OffsetLedger

TASKS = 1000
"""Maximum number of records in progress. At that number reading pauses."""
COMMIT_S = 0.2
SESSION_MS = 6000
"""Others get the partitions of a member that died after this time."""
TEXT_MAX = BROKER_METADATA_MAX
"""Maximum number of characters that brokers accept. None with a kafka-share-proxy that serves individual commits: no
limit.
"""


class Worked(ConsumerRebalanceListener):
    """One member of the group; everything runs in one thread, so tasks use the ledger themselves."""

    def __init__(self, bootstrap: str, topic: str, group: str, work_s_max: float) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 3,
            isolation_level="read_committed",
        )
        self._admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        self._topic, self._group, self._work_s_max = topic, group, work_s_max
        self._ledgers: dict[TopicPartition, OffsetLedger] = {}
        self._committed: dict[TopicPartition, tuple[int | None, str]] = {}
        self._rebalances = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Commit and leave the group; what is being worked on is begun again by the next owner."""
        self._stopping.set()

    async def run(self) -> None:
        """Until it is stopped."""
        await self._admin.start()
        await self._consumer.start()
        committing = asyncio.create_task(self._commit_again_and_again())
        try:
            self._consumer.subscribe([self._topic], listener=self)
            while not self._stopping.is_set():
                if len(self._tasks) >= TASKS:
                    await asyncio.wait(self._tasks, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
                    continue
                for place, records in (await self._consumer.getmany(timeout_ms=50, max_records=100)).items():
                    await self._take(place, records)
        finally:
            committing.cancel()
            await self._commit()
            await self._consumer.stop()
            await self._admin.close()

    async def _take(self, place: TopicPartition, records: Iterable[ConsumerRecord]) -> None:
        ledger = self._ledgers.get(place) or await self._begin(place)
        if ledger is None:
            return
        for record in records:
            if ledger.delivered(record.offset):  # else it was finished before a restart
                task = asyncio.create_task(self._work(ledger, record))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _begin(self, place: TopicPartition) -> OffsetLedger | None:
        """Return the group's committed state, read as an admin: `committed` of this client gives no metadata.

        None if the group rebalanced meanwhile: then the records at hand come again, to this member or another one.
        """
        rebalances = self._rebalances
        committed = await self._admin.list_consumer_group_offsets(self._group, partitions=[place])
        if rebalances != self._rebalances:
            return None
        self._ledgers[place] = OffsetLedger.from_committed(*committed.get(place, (None, None)))
        return self._ledgers[place]

    async def _work(self, ledger: OffsetLedger, record: ConsumerRecord) -> None:
        print(f"begin {record.partition} {record.offset}\n", end="", flush=True)
        await asyncio.sleep(min(float(record.value), self._work_s_max))  # the work
        ledger.done(record.offset)  # it may be the ledger of a partition that was revoked

    async def _commit_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await self._commit()

    async def _commit(self) -> None:
        states = {place: (ledger.offset, ledger.text(TEXT_MAX)) for place, ledger in self._ledgers.items()}
        new = {place: state for place, state in states.items() if state != self._committed.get(place)}
        offsets = {place: state for place, state in new.items() if state[0] is not None}
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
            self._committed.update(new)
        except KafkaError as error:  # the group rebalances: commit again later, or leave it to the next owner
            print(f"not committed: {error!r}", file=sys.stderr)

    async def on_partitions_assigned(self, _: set[TopicPartition]) -> None:
        """Nothing: the first records of a partition, which may come before this, begin its ledger."""

    async def on_partitions_revoked(self, _: set[TopicPartition]) -> None:
        """Called before others get the partitions; this client gives up all of them at each rebalance."""
        await self._commit()
        self._rebalances += 1
        self._ledgers.clear()
        self._committed.clear()


async def main() -> None:
    """Run as a command."""
    bootstrap, topic, group, *rest = sys.argv[1:]
    worked = Worked(bootstrap, topic, group, float(rest[0]) if rest else float("inf"))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worked.stop)
    await worked.run()


if __name__ == "__main__":
    asyncio.run(main())
