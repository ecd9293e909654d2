"""`conformance target`: serve a cluster in one process until SIGTERM or SIGINT, and report the findings."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kafka_share_proxy.app.commands.exits import MISUSED, fail, outcome

Listen = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Bootstrap: the port of node 1. Port 0 is assigned by the kernel.")
]
Nodes = Annotated[int, typer.Option(min=1, max=100, help="Number of nodes.")]
ScenarioFile = Annotated[str | None, typer.Option("--scenario", metavar="FILE", help="Scenario in YAML.")]
Strict = Annotated[bool, typer.Option("--strict", help="A finding ends the connection, and the status is 1.")]
Control = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Control the cluster over HTTP here. Port 0 is allowed.")
]
Seed = Annotated[int, typer.Option(help="Seed of ids and of faults with a probability.")]
Listed = Annotated[bool, typer.Option("--list", help="Print the served APIs, the rules and the actions, and end.")]
JUnit = Annotated[str | None, typer.Option(metavar="FILE", help="Write the findings as JUnit at the end.")]
Report = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the findings as JSON at the end.")]
ReadyFile = Annotated[str | None, typer.Option(metavar="FILE", help="Write the addresses as JSON when it serves.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME[:PARTITIONS]", help="Create a topic; may be repeated.")
]
Users = Annotated[
    list[str] | None,
    typer.Option("--user", metavar="NAME:PASSWORD", help="Require SASL PLAIN or SCRAM; may be repeated."),
]
Cert = Annotated[str | None, typer.Option(metavar="FILE", help="Certificate chain in PEM: require TLS.")]
Key = Annotated[str | None, typer.Option(metavar="FILE", help="Private key in PEM.")]
UntilEof = Annotated[
    bool, typer.Option("--until-stdin-closes", help="End when stdin closes, that is with the test that started it.")
]


def target(
    listen: Listen = "127.0.0.1:0",
    nodes: Nodes = 3,
    scenario: ScenarioFile = None,
    strict: Strict = False,
    control: Control = None,
    seed: Seed = 0,
    topic: Topics = None,
    user: Users = None,
    tls_cert: Cert = None,
    tls_key: Key = None,
    junit: JUnit = None,
    report: Report = None,
    ready_file: ReadyFile = None,
    until_stdin_closes: UntilEof = False,
    listed: Listed = False,
) -> None:
    """Serve a Kafka cluster in this process and in memory, without Java, that judges its clients."""
    if listed:
        from kafka_share_proxy.conformance.target import offer_list

        print(*offer_list.lines(), sep="\n")  # noqa: T201
        return
    from kafka_share_proxy.conformance.target import running

    def serve() -> int:
        options = running.RunOptions(
            listen=_address("--listen", listen),
            control=None if control is None else _address("--control", control),
            nodes=nodes,
            scenario=scenario,
            strict=strict,
            seed=seed,
            topics=tuple(_topic(each) for each in topic or ()),
            users=dict(_user(each) for each in user or ()),
            tls=running.tls_context(tls_cert, tls_key),
            junit=junit,
            report=report,
            ready_file=ready_file,
            until_stdin_closes=until_stdin_closes,
        )
        return running.run(options, sys.stdout, sys.stderr)

    raise typer.Exit(outcome(serve, running.TargetMistake))


def _address(flag: str, text: str) -> tuple[str, int]:
    """Return host and port; port 0 is allowed."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        fail(f"{flag} {text}: write HOST:PORT, for example 127.0.0.1:9092", MISUSED)
    return host, int(port)


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if partitions and not (partitions.isascii() and partitions.isdigit()):
        fail(f"--topic {text}: write NAME or NAME:PARTITIONS, for example orders:3", MISUSED)
    return name, int(partitions or 1)


def _user(text: str) -> tuple[str, str]:
    name, colon, password = text.partition(":")
    if not name or not colon or not password:
        fail("--user: write NAME:PASSWORD", MISUSED)
    return name, password
