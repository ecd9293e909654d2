"""A run of stock members of a share group, recorded on the wire and judged by tests/oracle/histories."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, QUICK, Running
from tests.support.history_judge import Verdict, judge_program, verdict_of
from tests.support.java_programs import java_program
from tests.support.raw import Raw
from tests.support.share_recorder import Place, Recorder, RecordingRelay, operations

NODE = 1
"""Id of the only broker."""
OTHER_HOST = "127.0.0.2"
"""Address of the relays in front of a proxy, which listens on the same ports of HOST."""
PARTITIONS, KEYS, EXPONENT = 2, 200, 0.7
LOCK_MS, HANG_MS, LIMIT = 2_000, 3_000, 5
RELEASED, HANGING, REJECTED, RENEWED, POLL_RECORDS = 0.05, 0.01, 0.02, 0.02, 50
LIMIT_S = 600.0
HISTORY = "history.jsonl"
SETTINGS = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
KINDS = ("java", "confluent")


@dataclass
class Recorded:
    """A cluster or proxy whose clients are recorded."""

    bootstrap: str
    """Without a recorder."""
    recorded: str
    """Through a relay."""
    recorder: Recorder
    settings: dict[str, str] = field(default_factory=dict)


@contextmanager
def native(running: Running, group: str) -> Iterator[Recorded]:
    """A 4.3.0 broker that advertises the relay."""
    recorder = Recorder(group)
    (port,) = free_ports(1)
    cluster = running.native(properties=QUICK, relay_port=port)
    relay = RecordingRelay(recorder, (HOST, port), (HOST, cluster.nodes[0].relayed_port))
    yield Recorded(cluster.bootstrap, f"{HOST}:{port}", recorder)
    relay.close()


def proxy_for_relays(running: Running) -> Front:
    """A proxy on 3.9.1 that advertises another address."""
    share_groups = {"state": "topic", "broker": QUICK}
    return running.front(running.cluster(OLD).bootstrap, {"advertise": OTHER_HOST, "share_groups": share_groups})


@contextmanager
def proxied(front: Front, group: str, **settings: str) -> Iterator[Recorded]:
    """Relays at the address that a proxy for relays advertises."""
    recorder = Recorder(group)
    ports = (front.port, front.first_port + NODE)
    relays = [RecordingRelay(recorder, (OTHER_HOST, port), (HOST, port)) for port in ports]
    yield Recorded(front.bootstrap, f"{OTHER_HOST}:{front.port}", recorder, settings)
    for relay in relays:
        relay.close()


def produce(bootstrap: str, topic: str, count: int) -> dict[Place, bytes | None]:
    """Append records with Zipf keys, one in ten without a key, and return the key of each."""
    keys: dict[Place, bytes | None] = {}

    def stored(error: Any, message: Any) -> None:
        assert error is None
        keys[message.partition(), message.offset()] = message.key()

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 100})
    dice = random.Random(29)
    weights = list(itertools.accumulate(rank**-EXPONENT for rank in range(1, KEYS + 1)))
    for number in dice.choices(range(KEYS), cum_weights=weights, k=count):
        key = None if dice.random() < 0.1 else b"k%d" % number
        producer.produce(topic, b"v", key=key, on_delivery=stored)
        producer.poll(0)
    assert producer.flush(60) == 0
    return keys


@contextmanager
def members(recorded: Recorded, topic: str, each: int, folder: Path) -> Iterator[None]:
    """Run `each` Java and `each` confluent-kafka members that release, reject, renew, and work longer than the lock."""
    commands = {
        "java": java_program("KeyedMember", "4.3.0", "-Xmx96m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
        "confluent": [sys.executable, "-m", "tests.support.keyed_member"],
    }
    with ExitStack() as stack:
        for number, kind in enumerate(KINDS * each, 1):
            behaviour = (number, RELEASED, HANGING, HANG_MS, POLL_RECORDS, REJECTED)
            more = (RENEWED,) if kind == "java" else ()
            arguments = [recorded.recorded, recorded.recorder.group, topic, *map(str, (*behaviour, *more))]
            child = Child([*commands[kind], *arguments], folder / f"{kind}-{number}.log")
            stack.callback(child.kill)
        yield


def unsettled(recorder: Recorder, places: set[Place]) -> set[Place]:
    """Return the records for which no settle was confirmed, and that have deliveries left."""
    remaining = set(places)
    for exchange in list(recorder.exchanges):
        for line in operations(exchange) if exchange.end is not None else ():
            is_settle = line.get("outcome") == "ok" and line["kind"] in ("accept", "reject", "gap")
            if is_settle or line.get("deliveries", 0) >= LIMIT:
                remaining -= {(line["partition"], offset) for offset in range(line["first"], line["last"] + 1)}
    return remaining


def run(
    recorded: Recorded, topic: str, count: int, each: int, folder: Path, fault: Callable[[int], None] | None = None
) -> Verdict:
    """Run the members until every record is settled, and judge the history. `fault`: called with the unsettled."""
    program = judge_program()
    group = recorded.recorder.group
    with Raw(recorded.bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
        raw.configure_group(group, SETTINGS | recorded.settings)
    keys = produce(recorded.bootstrap, topic, count)
    started_at = time.monotonic()
    with members(recorded, topic, each, folder):
        while remaining := unsettled(recorded.recorder, set(keys)):
            assert time.monotonic() < started_at + LIMIT_S, f"{len(remaining)} of {count} records are not settled"
            time.sleep(1)
            if fault is not None:
                fault(len(remaining))
        duration_s = time.monotonic() - started_at
        time.sleep((LOCK_MS + HANG_MS) / 1000)  # deliveries after the settle would be seen
    history = folder / HISTORY
    is_keyed = recorded.settings.get("share.ordering") == "key"
    is_exact = not recorded.recorder.failovers
    recorded.recorder.write(history, keys, lock_ms=LOCK_MS, limit=LIMIT, keyed=is_keyed, settled=True, exact=is_exact)
    verdict = verdict_of(program, history.read_text())
    print(f"\n{topic}: {count} records in {duration_s:.0f} s; {verdict}")
    return verdict
