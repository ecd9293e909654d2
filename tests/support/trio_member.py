"""Our own consumer, run by `view_member`: it works on records for a while, and delays what it is to give up."""

from __future__ import annotations

from typing import Any

import trio
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.consumer.partitions import Partitions

from tests.support.view_member import (
    BATCH,
    BEAT_MS,
    SESSION_MS,
    WAIT_S,
    report_partitions,
    report_record,
    stopped,
    tell,
)

WORK_S = 0.02
DELAYS = 5
"""Polls by which a revoke is put off."""


class Reported(RebalanceListener):
    """Member that prints its state."""

    def __init__(self) -> None:
        self.held: Partitions = frozenset()

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.held |= partitions
        report_partitions("assigned", self.held)

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        self.held -= partitions
        report_partitions("revoked", partitions)
        report_partitions("assigned", self.held)

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        await self.on_partitions_revoked(partitions)


def run(protocol: str, bootstrap: str, group: str, topic: str, assignor: str) -> None:
    """Poll and report until the input ends."""
    options: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        options |= {"session_timeout_s": SESSION_MS / 1000, "heartbeat_interval_s": BEAT_MS / 1000}
        options |= {"assignors": (assignor or "range",)}
    trio.run(_member, bootstrap, group, topic, options)


async def _member(bootstrap: str, group: str, topic: str, options: dict[str, Any]) -> None:
    end, delays = stopped(), 0
    async with open_consumer(
        bootstrap, group=group, topics=[topic], listener=Reported(), auto_offset_reset="earliest",
        metadata_max_age_s=1.0, **options,
    ) as consumer:  # fmt: skip
        while not end.is_set():
            try:
                records = (await consumer.poll(WAIT_S, max_records=BATCH)).records
                for record in records:
                    report_record(record.partition, record.offset, record.key or b"", record.value or b"")
                going = consumer.to_be_revoked
                delays = delays + 1 if going else 0
                if going and delays <= DELAYS:
                    consumer.delay_revoke(going)
                if records:
                    await trio.sleep(WORK_S)
                    await consumer.commit()
            except ConsumerError as error:  # the records are committed with the next ones, or come again
                tell("error", f"{type(error).__name__}: {error}")
