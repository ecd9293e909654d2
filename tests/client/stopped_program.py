"""A program that is stopped with SIGSTOP while it works: it writes one JSON line for each thing that happens.

`share`: works on one record of a share group until the work is cancelled. `group`: polls one record of a consumer
group, is stopped, and then reports what its next calls return.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import trio
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.consumer.events import PartitionLostError
from kafka_share_proxy.consumer.share.share_holds import LockLostError

WORK_S = 20.0
"""How long the work takes unless it is cancelled."""


def report(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def until_continued() -> None:
    """Return when the parent writes a line, which it does before SIGCONT."""
    await trio.to_thread.run_sync(sys.stdin.readline)


async def share(bootstrap: str, topic: str, group: str) -> None:
    async with open_share_consumer(bootstrap, group=group, topics=[topic], acknowledgement_mode="explicit") as consumer:
        (record,) = await consumer.poll()
        try:
            async with consumer.work(record):
                report(works_on=record.offset)
                await trio.sleep(WORK_S)
            report(ended="accepted")
        except LockLostError as error:
            report(ended=type(error).__name__)


async def group(bootstrap: str, topic: str, name: str) -> None:
    settings: dict[str, Any] = {"session_timeout_s": 6.0, "auto_offset_reset": "earliest"}
    async with open_consumer(bootstrap, group=name, topics=[topic], max_poll_records=1, **settings) as consumer:
        while not (result := await consumer.poll(1)).records:
            pass
        report(polled=result.records[0].offset)
        await until_continued()
        error = ""
        try:
            await consumer.commit({(topic, 0): 1})
        except PartitionLostError as lost:
            error = type(lost).__name__
        result = await consumer.poll(0)
        report(commit=error, records=len(result.records), lost=len(result.lost))


if __name__ == "__main__":
    trio.run({"share": share, "group": group}[sys.argv[1]], *sys.argv[2:])
