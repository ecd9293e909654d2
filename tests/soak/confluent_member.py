"""A share group member of confluent-kafka that lives until it is killed: BOOTSTRAP GROUP TOPIC SEED.

It prints "D partition offset count time" for each delivery, and "A", "L" or "J" (accept, release, reject) with
"partition offset time" once that was confirmed; times are nanoseconds since 1970.
"""

from __future__ import annotations

import random
import sys
import time

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

KINDS = {"A": AcknowledgeType.ACCEPT, "L": AcknowledgeType.RELEASE, "J": AcknowledgeType.REJECT}
RELEASED, REJECTED = 0.08, 0.03
COMMIT_S = 30.0


def kind(chance: float) -> str:
    """Return what becomes of a record."""
    return "L" if chance < RELEASED else "J" if chance < RELEASED + REJECTED else "A"


def main(bootstrap: str, group: str, topic: str, seed: str) -> None:
    choose = random.Random(seed)
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({**settings, "max.poll.records": 200, "log_level": 2})
    consumer.subscribe([topic])
    while True:
        try:
            messages = [message for message in consumer.poll(0.5) if message.error() is None]
            if messages:
                settle(consumer, messages, choose)
        except KafkaException as error:
            print(f"# {error}", flush=True)
            time.sleep(0.1)


def settle(consumer: ShareConsumer, messages: list[Message], choose: random.Random) -> None:
    """Say what was delivered, acknowledge it, and say what of it was confirmed."""
    lines = [f"D {m.partition()} {m.offset()} {m.delivery_count()} {time.time_ns()}" for m in messages]
    print("\n".join(lines), flush=True)
    reported: list[tuple[str, Message]] = []
    for message in messages:
        letter = kind(choose.random())
        consumer.acknowledge(message, KINDS[letter])
        reported.append((letter, message))
    outcome = consumer.commit_sync(COMMIT_S)
    now = time.time_ns()
    confirmed = {place.partition for place, error in outcome.items() if error is None}
    lines = [f"{letter} {m.partition()} {m.offset()} {now}" for letter, m in reported if m.partition() in confirmed]
    if lines:
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
