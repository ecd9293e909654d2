"""Every stock client subscribes to a view that does not exist yet, with default settings and no preparation.

The clients start together. Each has its own group and its own view, and is therefore the first to name it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import NEW, OLD, USERS, Running
from tests.support.java_tools import command
from tests.support.programs import built, built_with_go, need
from tests.support.raw import Raw, Topic
from tests.support.view_group import CHECKOUT, produce

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]

RECORDS = 60
ENDED_DURING_REFRESH = "Metadata refresh: failed Cancelled"
"""Logged by kafka-python when it is closed while its metadata is refreshed."""
READ_S = 120
ADMIN, ALICE, BOB = (("admin", "admin-secret"), ("alice", "alice-secret"), ("bob", "bob-secret"))
TOPIC, GROUP, LITERAL, PREFIXED, ALLOW = 2, 3, 3, 4, 3
READ, CREATE = 3, 5
Fresh = Callable[[str], str]

Command = Callable[..., list[str]]
"""Bootstrap, group, topic, user (name and password, or nothing) -> the command line of a reader."""


def python(client: str, *rest: str) -> list[str]:
    bootstrap, group, topic, *user = rest
    return [sys.executable, "-m", "tests.support.plain_reader", client, bootstrap, group, topic, str(RECORDS), *user]


def franz_go(bootstrap: str, group: str, topic: str, *user: str) -> list[str]:
    program = built_with_go("franzgo")
    return [str(program), "plain", bootstrap, group, topic, str(RECORDS), *user]


def sarama(bootstrap: str, group: str, topic: str, *user: str) -> list[str]:
    program = built_with_go("sarama")
    return [str(program), bootstrap, group, topic, str(RECORDS), *user]


def kafkajs(bootstrap: str, group: str, topic: str, *user: str) -> list[str]:
    install = [need("npm"), "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    program = built("kafkajs", install, "node_modules") / "plain.js"
    return [need("node"), str(program), bootstrap, group, topic, str(RECORDS), *user]


def java(release: str, protocol: str, bootstrap: str, group: str, topic: str, *user: str) -> list[str]:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "group.protocol": protocol}
    if user:
        login = f'username="{user[0]}" password="{user[1]}"'
        settings |= {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};",
        }  # fmt: skip
    flag = "--consumer-property" if release == OLD else "--command-property"
    options = [each for setting in settings.items() for each in (flag, "=".join(setting))]
    options += ["--topic", topic, "--max-messages", str(RECORDS), "--bootstrap-server", bootstrap]
    return command("consumer.ConsoleConsumer", *options, releases=(release,))


IN_PYTHON: Mapping[str, Command] = {
    "confluent-eager": partial(python, "confluent-eager"),
    "confluent-cooperative": partial(python, "confluent-cooperative"),
    "kafka-python": partial(python, "kafka-python"),
    "aiokafka": partial(python, "aiokafka"),
    "trio-classic": partial(python, "trio-classic"),
}
OTHERS: Mapping[str, Command] = {
    "franz-go": franz_go,
    "sarama": sarama,
    "kafkajs": kafkajs,
    "java-3.9.1": partial(java, OLD, "classic"),
    "java-4.3.0": partial(java, NEW, "classic"),
}
IN_PYTHON_WITH_848: Mapping[str, Command] = {
    "confluent-consumer": partial(python, "confluent-consumer"),
    "trio-consumer": partial(python, "trio-consumer"),
}
OTHERS_WITH_848: Mapping[str, Command] = {"java-4.3.0-consumer": partial(java, NEW, "consumer")}
CLIENTS: Mapping[tuple[str, str], Mapping[str, Command]] = {
    (OLD, "python"): IN_PYTHON,
    (OLD, "others"): OTHERS,
    (NEW, "python"): {**IN_PYTHON, **IN_PYTHON_WITH_848},
    (NEW, "others"): {**OTHERS, **OTHERS_WITH_848},
}


class Reading:
    """One client under way."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            arguments, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def reported(self) -> tuple[set[str], list[str], str]:
        """Values, errors, and what it wrote to standard error."""
        printed, complaints = self._process.communicate(timeout=READ_S)
        if self.name.startswith("java"):
            errors = [line for line in complaints.splitlines() if "ERROR" in line or "Exception" in line]
            return set(printed.split()), errors, ""
        lines = [json.loads(line) for line in printed.splitlines()]
        return (
            {text for kind, text in lines if kind == "value"},
            [text for kind, text in lines if kind == "error" and text != ENDED_DURING_REFRESH],
            complaints,
        )

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def readings(stack: ExitStack, front: Front, clients: Mapping[str, Command], base: Topic, *user: str) -> list[Reading]:
    """Start all of them, each for a different view."""
    started = []
    for number, (name, command_of) in enumerate(clients.items()):
        arguments = command_of(front.bootstrap, f"{base.name}-{name}", view_of(base, number), *user)
        started.append(Reading(name, arguments))
        stack.callback(started[-1].close)
    return started


def view_of(base: Topic, number: int) -> str:
    return f"__view.r{number + 2}.{base.name}"


@pytest.fixture(params=[OLD, NEW])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["python", "others"])
def clients(release: str, request: pytest.FixtureRequest) -> Mapping[str, Command]:
    return CLIENTS[release, request.param]


@pytest.fixture
def front(release: str, request: pytest.FixtureRequest) -> Front:
    front: Front = request.getfixturevalue({OLD: "views_39", NEW: "views_43"}[release])
    return front


def test_every_client_reads_a_view_that_does_not_exist_yet(
    front: Front, clients: Mapping[str, Command], fresh: Fresh
) -> None:
    """`subscribe` is all that it takes, and no error is reported."""
    with Raw(front.bootstrap) as raw, ExitStack() as stack:
        base = raw.create_topic(fresh("base"), 2)
        values = set(produce(raw, base, 0, RECORDS))
        assert not any(exists(raw, view_of(base, number)) for number in range(len(clients)))
        for each in readings(stack, front, clients, base):
            assert each.reported() == (values, [], ""), each.name
        assert all(exists(raw, view_of(base, number)) for number in range(len(clients)))


@pytest.fixture
def guarded(release: str, running: Running) -> Front:
    """A proxy in front of brokers with an authorizer. Alice and Bob may read all topics, and Alice may create views."""
    kafka: Cluster = running.cluster(release, sasl=USERS)
    identity = {"mechanism": "PLAIN", "username": ADMIN[0], "password": ADMIN[1]}
    rights = [(user, kind, "*", LITERAL, READ) for user in ("alice", "bob") for kind in (TOPIC, GROUP)]
    rights.append(("alice", TOPIC, "__view.", PREFIXED, CREATE))
    creations = [
        {
            "resource_type": kind, "resource_name": name, "resource_pattern_type": pattern,
            "principal": f"User:{user}", "host": "*", "operation": operation, "permission_type": ALLOW,
        }
        for user, kind, name, pattern, operation in rights
    ]  # fmt: skip
    with Raw(kafka.bootstrap, sasl=ADMIN) as raw:
        assert not [each for each in raw.send_request("CreateAcls", 3, creations=creations).results if each.error_code]
    return running.front(kafka.bootstrap, {"upstream": {"bootstrap": kafka.bootstrap, "sasl": identity}})


def test_without_the_right_to_create_every_client_reports_it(
    guarded: Front, clients: Mapping[str, Command], fresh: Fresh
) -> None:
    """Metadata has TOPIC_AUTHORIZATION_FAILED for the view. Only a heartbeat of KIP-848 has room for the right's name.

    Nothing is created for them. With the right on topics `__view.*` alone the view is read.
    """
    alone = {"confluent-eager": IN_PYTHON["confluent-eager"]}
    with Raw(guarded.bootstrap, sasl=ADMIN) as raw, ExitStack() as stack:
        base = raw.create_topic(fresh("base"), 2)
        values = set(produce(raw, base, 0, RECORDS))
        for each in readings(stack, guarded, clients, base, *BOB):
            got, errors, _ = each.reported()
            assert not got, each.name
            assert re.search("not authorized|authorization.?failed", " ".join(errors), re.IGNORECASE), each.name
            if each.name == "confluent-consumer":
                assert "grant CREATE on this topic" in errors[0]
        assert "grant CREATE on this topic" in guarded.output()
        assert not any(exists(raw, view_of(base, number)) for number in range(len(clients)))
        for each in readings(stack, guarded, alone, base, *ALICE):
            assert each.reported() == (values, [], "")


def exists(raw: Raw, view: str) -> bool:
    """True if its topic exists: what Metadata shows of a view without one has no topic id."""
    (shown,) = raw.send_request("Metadata", 12, topics=[{"name": view}]).topics
    assert (shown.error_code, len(shown.partitions) > 0) == (0, True)
    return any(shown.topic_id)
