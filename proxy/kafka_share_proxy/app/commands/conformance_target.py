"""`conformance target`: serve a cluster in one process until SIGTERM or SIGINT, and report the findings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from kafka_share_proxy.conformance.target.running import RunOptions

FAILED, MISUSED = 1, 2

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

    try:
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
    except running.TargetMistake as error:
        _fail(str(error), MISUSED)
    raise typer.Exit(_run(options))


def _run(options: RunOptions) -> int:
    from kafka_share_proxy.conformance.target import running

    try:
        return running.run(options, sys.stdout, sys.stderr)
    except running.TargetMistake as error:
        _fail(str(error), MISUSED)
    except OSError as error:
        _fail(error.strerror or str(error), FAILED)


def _address(flag: str, text: str) -> tuple[str, int]:
    """Return host and port; port 0 is allowed."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        _fail(f"{flag} {text}: write HOST:PORT, for example 127.0.0.1:9092", MISUSED)
    return host, int(port)


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if partitions and not (partitions.isascii() and partitions.isdigit()):
        _fail(f"--topic {text}: write NAME or NAME:PARTITIONS, for example orders:3", MISUSED)
    return name, int(partitions or 1)


def _user(text: str) -> tuple[str, str]:
    name, colon, password = text.partition(":")
    if not name or not colon or not password:
        _fail("--user: write NAME:PASSWORD", MISUSED)
    return name, password


def _fail(text: str, status: int) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(status)
