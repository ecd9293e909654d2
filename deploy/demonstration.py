"""The demonstration itself, run by deploy/demo inside its environment.

A stock Kafka 3.9.1 broker, the proxy, a stock producer, stock share consumers, and one of our own, which renews.
Everything that must hold is checked; what does not ends the demonstration with a text and a status other than 0.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import kafka_share_proxy
import trio
from confluent_kafka import KafkaException, Message, Producer, ShareConsumer
from kafka_share_proxy import ShareRecord, open_share_consumer
from kafka_share_proxy.app.commands import demo_topics, terminal
from kafka_share_proxy.localkafka import jars, java
from kafka_share_proxy.localkafka.cluster import SMALL, BrokerError, Cluster
from kafka_share_proxy.localkafka.front import Front, FrontError
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ProxyError
from rich.console import Console
from rich.table import Table

RELEASE = "3.9.1"
LIMIT_S = 85.0
"""The whole demonstration, once Kafka is fetched."""
LOCK_S = 2.0
KEPT_S = 5 * LOCK_S
"""How long one record is kept by renewing its lock."""
QUEUE_RECORDS = 60
SHARE_APIS = {76: "ShareGroupHeartbeat", 77: "ShareGroupDescribe", 78: "ShareFetch", 79: "ShareAcknowledge"}

out = Console(highlight=False)


class DemoError(Exception):
    """Something did not happen as it must."""


EXPECTED = (DemoError, BrokerError, FrontError, ProxyError, jars.JarError, java.NoJavaError)
"""Errors that are reported without a traceback."""


@dataclass
class Worker:
    """A stock share consumer in a thread: accepts what it gets, and remembers it."""

    name: str
    bootstrap: str
    group: str
    topic: str
    work_s: float = 0.02
    """How long it takes over one record."""
    got: list[tuple[int, int]] = field(default_factory=list)
    """(offset, delivery count)"""
    seen_at: dict[int, float] = field(default_factory=dict)
    problem: str = ""
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Give it a thread."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def __enter__(self) -> Worker:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let it close its consumer, and wait for that."""
        self._stopping.set()
        self._thread.join(15)

    def _run(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap, "group.id": self.group, "client.id": self.name,
            "share.acknowledgement.mode": "explicit", "max.poll.records": 5, "log_level": 2,
        }  # fmt: skip
        try:
            with ShareConsumer(settings) as consumer:
                consumer.subscribe([self.topic])
                while not self._stopping.is_set():
                    for message in consumer.poll(0.2):
                        self._take(message)
                        consumer.acknowledge(message)
        except KafkaException as error:
            self.problem = str(error)

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            raise KafkaException(message.error())
        offset = message.offset() or 0
        self.got.append((offset, message.delivery_count() or 0))
        self.seen_at.setdefault(offset, time.monotonic())
        time.sleep(self.work_s)


def main() -> int:
    """Run it; the status is 0 when everything was as it must be."""
    options = argparse.ArgumentParser(prog="deploy/demo", description="Share groups on a Kafka that has none.")
    options.add_argument("--keep", action="store_true", help="stay up afterwards, until Ctrl-C")
    keep = options.parse_args().keep
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _interrupted)
    try:
        jars.class_path(RELEASE, console=out)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        _demonstrate(keep)
    except EXPECTED as error:
        return _failed(str(error))
    except (OSError, KafkaException) as error:
        return _failed(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        out.print("\nStopped.")
        return 130
    return 0


def _interrupted(number: int, _: FrameType | None) -> None:
    if number == signal.SIGALRM:
        raise DemoError(f"it took longer than {LIMIT_S:.0f} s")
    raise KeyboardInterrupt


def _failed(text: str) -> int:
    out.print(f"\n[bold red]The demonstration failed:[/] {text}", soft_wrap=True)
    return 1


def _demonstrate(keep: bool) -> None:
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-share-proxy-")))
        out.rule("1. A Kafka without share groups", align="left")
        with out.status(f"Starting Kafka {RELEASE} ..."):
            kafka = stack.enter_context(Cluster(RELEASE, folder / "kafka", java_options=SMALL))
        out.print(f"Kafka {RELEASE}, one broker, listens on [bold]{kafka.bootstrap}[/].")
        with out.status("Starting the proxy ..."):
            front = stack.enter_context(
                Front(kafka.bootstrap, folder / "proxy", {"share_groups": {"broker": _broker()}})
            )
        with _proxy_log_on_failure(front):
            out.print(f"kafka-share-proxy in front of it listens on [bold]{front.bootstrap}[/].\n")
            _compare_versions(kafka.bootstrap, front.bootstrap)
            _share_a_queue(front.bootstrap)
            _renew_a_lock(front.bootstrap)
            out.rule(align="left")
            out.print(f"[bold green]All of it held[/], in {time.monotonic() - started:.0f} s.")
            if keep:
                signal.setitimer(signal.ITIMER_REAL, 0)
                _stay(front.bootstrap)


def _broker() -> dict[str, str]:
    """The proxy's bounds for share groups, under Kafka's names: short locks, to show them end; and quick joins."""
    return {"group.share.min.record.lock.duration.ms": "1000", "group.share.assignment.interval.ms": "0"}


@contextmanager
def _proxy_log_on_failure(front: Front) -> Iterator[None]:
    try:
        yield
    except (*EXPECTED, OSError, KafkaException):
        out.print("[dim]The proxy's log:[/]")
        out.print(front.output(), markup=False, style="dim", soft_wrap=True)
        raise


def _stay(bootstrap: str) -> None:
    out.print(f"\nTry it: [bold]bootstrap.servers={bootstrap}[/]   (Ctrl-C ends everything)")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        out.print("\nStopped.")


# 1. What a client is offered


def _compare_versions(broker: str, proxy: str) -> None:
    there, here = _versions(broker), _versions(proxy)
    table = Table("API a share consumer needs", f"Kafka {RELEASE}", "through the proxy")
    for key, name in SHARE_APIS.items():
        table.add_row(name, _range(there.get(key)), _range(here.get(key)))
    out.print(table)
    if SHARE_APIS.keys() & there.keys():
        raise DemoError(f"this Kafka {RELEASE} has native share groups: {sorted(there)}")
    if missing := SHARE_APIS.keys() - here.keys():
        raise DemoError(f"the proxy does not offer the APIs {sorted(missing)}")


def _versions(bootstrap: str) -> dict[int, tuple[int, int]]:
    with demo_topics.connect(bootstrap) as connection:
        return connection.versions


def _range(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return "[red]no[/]"
    return f"[green]v{versions[0]}[/]" if versions[0] == versions[1] else f"[green]v{versions[0]}-v{versions[1]}[/]"


# 2. A queue


def _share_a_queue(bootstrap: str) -> None:
    """Two stock share consumers read one partition together; every record goes to exactly one of them."""
    out.rule("2. Two stock share consumers (confluent-kafka), one partition", align="left")
    _prepare(bootstrap, "orders", "workers")
    ann, ben = (Worker(name, bootstrap, "workers", "orders") for name in ("ann", "ben"))
    with ann, ben:
        _wait(lambda: _members(bootstrap, "workers") == 2, 20, "both to have joined", ann, ben)
        _produce(bootstrap, "orders", QUEUE_RECORDS)
        _wait(lambda: len(ann.got) + len(ben.got) >= QUEUE_RECORDS, 20, "the records to be consumed", ann, ben)
    table = Table("consumer", "records", "offsets of partition 0")
    for worker in (ann, ben):
        table.add_row(worker.name, str(len(worker.got)), terminal.number_ranges([offset for offset, _ in worker.got]))
    out.print(table)
    offsets = sorted(offset for offset, _ in (*ann.got, *ben.got))
    if offsets != list(range(QUEUE_RECORDS)):
        raise DemoError(f"not every record was delivered exactly once: {terminal.number_ranges(offsets)}")
    if not ann.got or not ben.got:
        raise DemoError("one of the consumers got nothing")
    out.print(f"{QUEUE_RECORDS} records, each to exactly one of the two.\n")


def _prepare(bootstrap: str, topic: str, group: str) -> None:
    """Create a topic of one partition, and let the group begin at its start with short locks."""
    demo_topics.create_topic(bootstrap, topic)
    settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(int(LOCK_S * 1000))}
    demo_topics.configure_group(bootstrap, group, settings)


def _members(bootstrap: str, group: str) -> int:
    """Return how many members of the group have something to read."""
    request = messages.ShareGroupDescribeRequest(group_ids=[group])
    with demo_topics.connect(bootstrap) as connection:
        response = connection.send_request(ApiKey.SHARE_GROUP_DESCRIBE, request, 1)
    return sum(bool(member.assignment.topic_partitions) for member in response.groups[0].members)


def _produce(bootstrap: str, topic: str, count: int) -> None:
    problems: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 2})
    for number in range(count):
        producer.produce(topic, f"order {number}", on_delivery=lambda error, _: error and problems.append(str(error)))
        producer.poll(0)
        time.sleep(0.02)
    unsent = producer.flush(15)
    if unsent or problems:
        raise DemoError(f"{unsent} records were not produced: {problems[:1]}")


# 3. A lock that is renewed


def _renew_a_lock(bootstrap: str) -> None:
    """One consumer holds two records and renews one lock; a second one waits for any released record."""
    out.rule("3. A lock that is renewed, and one that is not", align="left")
    _prepare(bootstrap, "jobs", "careful")
    _produce(bootstrap, "jobs", 2)
    with ThreadPoolExecutor(1) as thread:  # signals interrupt the main thread, and may not do so within Trio
        thread.submit(trio.run, _hold_and_renew, bootstrap).result()


async def _hold_and_renew(bootstrap: str) -> None:
    async with open_share_consumer(
        bootstrap, group="careful", topics=["jobs"], client_id="carla", acknowledgement_mode="explicit"
    ) as carla:
        renewed, dropped = await _hold_two(carla)
        start = time.monotonic()
        lock_s = (carla.acquisition_lock_timeout_ms or 0) / 1000
        out.print(f"[bold]carla[/] holds records 0 and 1, each locked for {lock_s:.0f} s.")
        with Worker("dave", bootstrap, "careful", "jobs") as dave:
            await _keep_renewing(carla, renewed, dave, start)
            _check_redelivery(dave, dropped, start)
            carla.acknowledge(renewed)
            if (error := (await carla.commit())[renewed.origin]) is not None:
                raise error
            out.print(f"{KEPT_S:5.1f} s  [bold]carla[/] accepts record 0: five locks long, and no other member got it.")
            await trio.sleep(LOCK_S / 2)
        if [offset for offset, _ in dave.got] != [dropped.offset]:
            raise DemoError(f"dave was to get record {dropped.offset} alone, and got {dave.got} {dave.problem}")
    out.print("")


async def _hold_two(carla: kafka_share_proxy.ShareConsumer) -> tuple[ShareRecord, ShareRecord]:
    held: list[ShareRecord] = []
    end = time.monotonic() + 10
    while len(held) < 2 and time.monotonic() < end:
        held += await carla.poll(1)
    if [record.offset for record in held] != [0, 1]:
        raise DemoError(f"carla was to get records 0 and 1, and got {held}")
    return held[0], held[1]


async def _keep_renewing(
    carla: kafka_share_proxy.ShareConsumer, record: ShareRecord, dave: Worker, start: float
) -> None:
    """Renew every half lock until KEPT_S have passed; say so, and say when dave gets something."""
    printed = renewals = 0
    while (now := time.monotonic()) < start + KEPT_S:
        if now >= start + (renewals + 1) * LOCK_S / 2:
            await carla.renew(record)
            renewals += 1
            out.print(f"{now - start:5.1f} s  [bold]carla[/] renews record 0")
        for offset, count in dave.got[printed:]:
            passed = dave.seen_at[offset] - start
            out.print(f"{passed:5.1f} s  [bold]dave[/] gets record {offset}, delivery {count}: its lock had run out")
            printed += 1
        await trio.sleep(0.05)


def _check_redelivery(dave: Worker, dropped: ShareRecord, start: float) -> None:
    if dave.problem:
        raise DemoError(f"dave: {dave.problem}")
    if dave.got != [(dropped.offset, 2)]:
        raise DemoError(f"dave was to get record {dropped.offset} as delivery 2, and got {dave.got}")
    if dave.seen_at[dropped.offset] < start + LOCK_S * 0.75:
        raise DemoError("record 1 was delivered before its lock can have expired")


def _wait(done: Callable[[], bool], timeout_s: float, what: str, *workers: Worker) -> None:
    end = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > end or any(worker.problem for worker in workers):
            got = ", ".join(f"{worker.name} {len(worker.got)} {worker.problem}" for worker in workers)
            raise DemoError(f"waited {timeout_s:.0f} s for {what}: {got}")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
