"""What the pages say of options and versions is what the program has, and what the tests use."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import libversion
from kafka_share_proxy.app.cli import app
from kafka_share_proxy.conformance.suite.all_cases import ALL_CASES
from typer.main import get_command

from tests.support import documents
from tests.support.java_tools import NEWEST
from tests.support.programs import CLIENTS

README_LINES_MAX = 200
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
BENCH = re.compile(r"python -m (tests(?:\.\w+)+)")
"""A documented command of the tests, with its module, whose options are read there."""
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FOREIGN = {
    "--archives": "spark-submit",
    "--crash": "tests/soak",
    "--commits": "tests/storm",
    "--delays": "tests/storm",
    "--order": "tests/storm",
    "--describe": "tools of Kafka",
    "--help": "every command",
    "--keep": "deploy/demo",
    "--py-files": "spark-submit",
    "--topic": "tools of Kafka",
}
"""Options of other programs, each with whose it is."""


def options_of(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*getattr(parameter, "opts", ()), *getattr(parameter, "secondary_opts", ()))
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from options_of(command.get_command(None, name))


@pytest.mark.parametrize("document", documents.ALL, ids=lambda path: path.name)
def test_each_option_that_is_named_exists(document: Path) -> None:
    text = documents.FENCE.sub("", document.read_text(encoding="utf-8"))
    codes = [code for code in INLINE.findall(text) if not BENCH.match(code)]
    named_options = {option for code in codes for option in OPTION.findall(code)}
    assert named_options - set(options_of(get_command(app))) - FOREIGN.keys() == set()


@pytest.mark.parametrize("document", documents.ALL, ids=lambda path: path.name)
def test_each_option_of_a_benchmark_is_one_that_it_reads(document: Path) -> None:
    text = documents.FENCE.sub("", document.read_text(encoding="utf-8"))
    for code in INLINE.findall(text):
        if command := BENCH.match(code):
            source = (documents.CHECKOUT / command[1].replace(".", "/")).with_suffix(".py").read_text()
            assert [option for option in OPTION.findall(code) if f'"{option}"' not in source] == [], code


def go_version(client: str, module: str) -> str:
    """Return the version of a module that a client program of the tests is built with."""
    text = (CLIENTS / client / "go.mod").read_text()
    return re.findall(rf"{re.escape(module)} v(\S+)", text)[0]


def pinned_versions() -> dict[str, str]:
    kafkajs = json.loads((CLIENTS / "kafkajs" / "package.json").read_text())["dependencies"]["kafkajs"]
    return {
        "Java, kafka-clients": NEWEST[0].removeprefix("clients-"),
        "franz-go": go_version("franzgo", "github.com/twmb/franz-go"),
        "Sarama": go_version("sarama", "github.com/IBM/sarama"),
        "KafkaJS": kafkajs,
    }


def listed_versions(client: str) -> list[str]:
    text = documents.CLIENTS.read_text(encoding="utf-8")
    return re.findall(rf"^\| {re.escape(client)} \| ([^| ]+)", text, re.MULTILINE)


@pytest.mark.parametrize("client", pinned_versions())
def test_the_versions_of_clients_are_those_that_the_tests_pin(client: str) -> None:
    assert pinned_versions()[client] in listed_versions(client)


@pytest.mark.parametrize(
    ("client", "installed"),
    [
        ("confluent-kafka (librdkafka)", version("confluent-kafka")),
        ("librdkafka, from C", libversion()[0]),
        ("kafka-python", version("kafka-python")),
        ("aiokafka", version("aiokafka")),
    ],
)
def test_no_version_is_listed_that_the_tests_have_not_seen(client: str, installed: str) -> None:
    """An environment may have a newer one, which passed the tests if this run does."""
    (listed,) = listed_versions(client)
    assert numbers(listed) <= numbers(installed)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def test_the_readme_is_short() -> None:
    assert len(documents.README.read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_the_numbers_of_conformance_cases_are_those_of_the_suite() -> None:
    """Compare the table of suites, and the total on both pages."""
    text = documents.CONFORMANCE.read_text(encoding="utf-8")
    counted = Counter(case.suite for case in ALL_CASES.select())
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \| (\d+) \|", text, re.MULTILINE)
    listed = {tuple(INLINE.findall(names)): int(number) for names, number in rows}
    assert sorted(name for names in listed for name in names) == sorted(counted)
    assert {names: sum(counted[name] for name in names) for names in listed} == listed
    total = f"{counted.total():,}"
    assert f"with {total} rules" in text
    assert f"against {total}\nrules" in documents.README.read_text(encoding="utf-8")
