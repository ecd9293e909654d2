"""A confluent-kafka member of a share group that releases some records and sometimes works longer than the lock.

    python -m tests.support.keyed_member BOOTSTRAP GROUP TOPIC SEED RELEASED HANGING HANG_MS POLL_RECORDS [REJECTED]

The arguments and the lines are those of `tests/clients/keyedmember`.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

Printed = tuple[object, ...]
Shares = tuple[float, float]
"""Shares of records that are released and rejected."""
LINES = {AcknowledgeType.ACCEPT: "A", AcknowledgeType.RELEASE: "R"}


def print_lines(*lines: Printed) -> None:
    """Write the lines with one call, so that they outlive a kill."""
    if lines:
        sys.stdout.write("".join(" ".join(map(str, line)) + "\n" for line in lines))
        sys.stdout.flush()


def on_result(acknowledged: dict[Any, set[int]], error: KafkaException | None) -> None:
    word = "-" if error is None else error.args[0].name()
    now = time.monotonic_ns()
    print_lines(
        *(("S", place.partition, offset, now, word) for place, offsets in acknowledged.items() for offset in offsets)
    )


def acknowledge(consumer: ShareConsumer, messages: Sequence[Message], dice: random.Random, shares: Shares) -> None:
    """Acknowledge the messages. Rejected ones have no line."""
    chosen = [(_type(dice.random(), shares), message) for message in messages]
    now = time.monotonic_ns()
    print_lines(*((LINES[kind], each.partition(), each.offset(), now) for kind, each in chosen if kind in LINES))
    for kind, message in chosen:
        consumer.acknowledge(message, kind)


def _type(chance: float, shares: Shares) -> AcknowledgeType:
    released, rejected = shares
    if chance < released:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if chance < released + rejected else AcknowledgeType.ACCEPT


def main() -> None:
    """Work until killed."""
    bootstrap, group, topic, seed, released, hanging, hang_ms, poll_records, *rejected = sys.argv[1:]
    shares = float(released), float(rejected[0]) if rejected else 0.0
    dice = random.Random(int(seed))
    options: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    options |= {"max.poll.records": int(poll_records), "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer(options)
    consumer.set_acknowledgement_commit_callback(on_result)
    consumer.subscribe([topic])
    iteration = 0
    while True:
        try:
            messages = [each for each in consumer.poll(0.5) if each.error() is None]
            now = time.monotonic_ns()
            print_lines(*(("D", m.partition(), m.offset(), now, m.delivery_count() or 0) for m in messages))
            if messages:
                iteration += 1
                if dice.random() < float(hanging):
                    print_lines(("H",))
                    time.sleep(float(hang_ms) / 1000)
                acknowledge(consumer, messages, dice, shares)
                consumer.commit_sync() if iteration % 2 else consumer.commit_async()
        except KafkaException as error:
            print_lines(("E", " ".join(str(error).split())))


if __name__ == "__main__":
    main()
