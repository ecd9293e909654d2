"""Stock clients of five families at work on one bootstrap address, and what happened to their records."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from kafka_share_proxy.localkafka.children import Child

from tests.support import java_tools
from tests.support.programs import built_with_go
from tests.support.raw import Raw, until
from tests.support.settlements import gaps
from tests.support.working_client import PARTITIONS

START_S, DRAINED_S, READ_S = 90.0, 90.0, 60.0
STOP_S = 60.0
FAULTS_SHOWN = 5
SLOTS = 2
PYTHON = (sys.executable, "-m", "tests.support.working_client")


@dataclass(frozen=True)
class Client:
    """One program."""

    family: str
    role: str

    @property
    def name(self) -> str:
        return f"{self.family}-{self.role}"

    @property
    def produces(self) -> bool:
        return self.role in ("produce", "transactions")


EVERY = tuple(
    Client(family, role)
    for family, roles in {
        "confluent": ("produce", "transactions", "group", "view", "commits"),
        "kafka-python": ("produce", "group"),
        "aiokafka": ("produce", "group"),
        "franz-go": ("produce", "group"),
        "java": ("produce", "group"),
    }.items()
    for role in roles
)
PLAIN = tuple(client for client in EVERY if client.role not in ("view", "commits"))
"""Clients that need nothing of this proxy."""


@dataclass
class Reported:
    """Output of one program."""

    produced: dict[str, int] = field(default_factory=dict)
    """Value -> time of the acknowledgement, in nanoseconds."""
    consumed: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)


class ClientsAtWork:
    """Programs that produce to one topic for each producer, and groups that read all of them."""

    def __init__(self, bootstrap: str, folder: Path, clients: Iterable[Client], topic: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._bootstrap, self._topic, self._folder = bootstrap, topic, folder
        with Raw(bootstrap) as raw:
            raw.create_topic(topic, PARTITIONS)
        self.children = {client: Child(self._command(client), folder / f"{client.name}.log") for client in clients}

    def begin(self) -> None:
        """Wait until every program has produced or received a record."""
        for client in self.children:
            until(lambda client=client: self._works(client), f"{client.name} to work", START_S)  # type: ignore[misc]
        self.since = time.time_ns()

    def finish(self) -> dict[Client, Reported]:
        """Stop the producers, let the groups read everything, and return what all said."""
        self.until = time.time_ns()
        ended = [client for client in self.children if client.produces]
        self._stop(ended)
        produced = {value for client in ended for value in reported(client, self.children[client].log).produced}
        readers = [client for client in self.children if not client.produces]
        with suppress(TimeoutError):  # then the faults say what is missing
            until(lambda: not any(self._missing(client, produced) for client in readers), "all is read", DRAINED_S, 0.5)
        self._stop(readers)
        return {client: reported(client, child.log) for client, child in self.children.items()}

    def kill(self) -> None:
        for child in self.children.values():
            child.kill()

    def report(self, title: str, all_reported: Mapping[Client, Reported]) -> None:
        """Print the longest pause of each producer, and how much was received twice."""
        print(f"\n{title}:")
        for client, each in all_reported.items():
            if client.produces:
                pause = gaps(each.produced.values(), self.since, self.until)[0][0] / 1e9
                print(f"  {client.name}: {len(each.produced):,} records, longest pause {pause:.2f} s")
            else:
                again = sum(each.consumed.values()) - len(each.consumed)
                print(f"  {client.name}: {len(each.consumed):,} records, {again:,} received again")

    def _command(self, client: Client) -> list[str]:
        name, topic = f"{self._topic}-{client.name}", self._topic
        if client.family == "franz-go":
            program = built_with_go("franzgo")
            return [str(program), "work", client.role, self._bootstrap, topic, name]
        if client.family == "java":
            common = ["--bootstrap-server", self._bootstrap, "--topic", topic]
            if client.produces:
                settings = self._folder / "java.properties"
                settings.write_text("enable.idempotence=true\nretries=2147483647\n")  # the tool sets retries to 0
                paced = ("--throughput", "50", "--value-prefix", "7", "--command-config", str(settings))
                return java_tools.command("VerifiableProducer", *common, *paced)
            return java_tools.command("VerifiableConsumer", *common, "--group-id", name, "--verbose")
        read = f"__view.r{SLOTS}.{topic}" if client.role == "view" else topic
        return [*PYTHON, client.family, client.role, self._bootstrap, read, name]

    def _works(self, client: Client) -> bool:
        child = self.children[client]
        assert child.status is None, f"{client.name} ended by itself: {child.output()}"
        each = reported(client, child.log)
        return bool(each.produced or each.consumed)

    def _missing(self, client: Client, produced: set[str]) -> set[str]:
        return produced - reported(client, self.children[client].log).consumed.keys()

    def _stop(self, clients: Iterable[Client]) -> None:
        for client in clients:
            self.children[client].signal(15)
        for client in clients:
            self.children[client].stop(STOP_S)


def faults(all_reported: Mapping[Client, Reported], log: Counter[str]) -> list[str]:
    """Return what went wrong. `log`: how often each value is in the topic."""
    errors = [f"{client.name}: {error}" for client, each in all_reported.items() for error in each.errors]
    produced = [value for each in all_reported.values() for value in each.produced]
    errors += _some("lost", [value for value in produced if not log[value]])
    errors += _some("written twice", [value for value, count in log.items() if count > 1])
    for client, each in all_reported.items():
        if not client.produces:
            errors += _some(f"not received by {client.name}", [v for v in produced if not each.consumed[v]])
    return errors


def reported(client: Client, log: Path) -> Reported:
    """Return what a program has printed so far."""
    result = Reported()
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if client.family == "java":
            _read_java(line, result)
            continue
        match line.split(" ", 2):
            case ["P", value, at]:
                result.produced[value] = int(at)
            case ["C", value, _]:
                result.consumed[value] += 1
            case ["E", *_]:
                result.errors.append(line)
    return result


def _read_java(line: str, result: Reported) -> None:
    """Read a line of Kafka's VerifiableProducer or VerifiableConsumer."""
    if not line.startswith("{") or not line.endswith("}"):
        return
    event = json.loads(line)
    match event.get("name"):
        case "producer_send_success":
            result.produced[event["value"]] = event["timestamp"] * 1_000_000
        case "record_data":
            result.consumed[event["value"]] += 1
        case "producer_send_error" | "offsets_committed" if event.get("error") or event.get("exception"):
            result.errors.append(line)


def values_in(bootstrap: str, topic: str) -> Counter[str]:
    """Return how often each committed value is in a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"})
    ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    counts, deadline = Counter[str](), time.monotonic() + READ_S
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            counts[(message.value() or b"").decode()] += 1
        if all(at.offset >= ends[at.partition] for at in consumer.position(consumer.assignment())):
            consumer.close()
            return counts
    raise TimeoutError(f"{topic} was not read to its end within {READ_S:g} s")


def _some(label: str, values: list[str]) -> list[str]:
    more = f" and {len(values) - FAULTS_SHOWN} more" if len(values) > FAULTS_SHOWN else ""
    return [f"{label}: {values[:FAULTS_SHOWN]}{more}"] if values else []
