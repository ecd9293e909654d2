"""A cluster as a process: addresses when it serves, reports when it ends."""

from __future__ import annotations

import json
import signal
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import trio

from kafka_share_proxy.conformance.target.server import TargetOptions, TargetServer, open_target

if TYPE_CHECKING:
    from kafka_share_proxy.conformance.target.scenario import Scenario

STDIN_BYTES = 4096


class TargetMistake(Exception):
    """Options that cannot be used. The text says what is wrong."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of the command."""

    listen: tuple[str, int]
    control: tuple[str, int] | None = None
    nodes: int = 3
    scenario: str | None = None
    strict: bool = False
    seed: int = 0
    topics: tuple[tuple[str, int], ...] = ()
    """Name and number of partitions."""
    users: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    junit: str | None = None
    report: str | None = None
    """File for the findings as JSON."""
    ready_file: str | None = None
    until_stdin_closes: bool = False


def tls_context(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the server side of TLS, None without a certificate. Raises TargetMistake."""
    if cert is None:
        if key is not None:
            raise TargetMistake("--tls-key needs --tls-cert as well")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        raise TargetMistake(f"--tls-cert {cert}: {error.strerror or error}") from None
    return context


def run(options: RunOptions, out: TextIO, err: TextIO) -> int:
    """Serve until SIGTERM, SIGINT or the end of stdin. Return the exit status.

    Raises TargetMistake, or OSError if an address cannot be opened.
    """
    return trio.run(_serve, options, out, err)


async def _serve(options: RunOptions, out: TextIO, err: TextIO) -> int:
    scenario = _scenario(options)
    try:
        async with open_target(_target_options(options, scenario)) as server, trio.open_nursery() as nursery:
            await _prepare(server, options, scenario)
            control = await _start_control(server, options, nursery)
            _announce(server, options, control, out)
            await _until_ended(options)
            nursery.cancel_scope.cancel()
            return _report(server, options, err)
    except BaseExceptionGroup as group:
        raise _first_mistake(group) from None


def _first_mistake(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the mistake of the user in a group that has nothing else, or the group."""
    mistakes, rest = group.split((OSError, TargetMistake))
    first: BaseException | None = mistakes
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return group if rest is not None or first is None else first


def _scenario(options: RunOptions) -> Scenario | None:
    if options.scenario is None:
        return None
    from kafka_share_proxy.conformance.target import scenario  # pydantic is slow to import

    try:
        return scenario.load(options.scenario)
    except scenario.ScenarioError as error:
        raise TargetMistake(str(error)) from None


def _target_options(options: RunOptions, scenario: Scenario | None) -> TargetOptions:
    """Return the options of the cluster. The flags have precedence over the scenario."""
    seed, nodes = options.seed, options.nodes
    if scenario is not None:
        seed = seed or scenario.seed or 0
        nodes = scenario.nodes or nodes
    return TargetOptions(
        host=options.listen[0],
        port=options.listen[1],
        nodes=nodes,
        seed=seed,
        strict=options.strict,
        tls=options.tls,
        users=options.users,
        start_ms=None if scenario is None else scenario.start_ms,
    )


async def _prepare(server: TargetServer, options: RunOptions, scenario: Scenario | None) -> None:
    try:
        for name, partitions in options.topics:
            server.cluster.create_topic(name, partitions)
    except ValueError as error:
        raise TargetMistake(f"--topic: {error}") from None
    if scenario is not None:
        from kafka_share_proxy.conformance.target.scenario import ScenarioError, prepare

        try:
            await prepare(scenario, server)
        except ScenarioError as error:
            raise TargetMistake(f"{options.scenario}: {error}") from None


async def _start_control(server: TargetServer, options: RunOptions, nursery: trio.Nursery) -> str | None:
    """Serve the control if it is on, and return its address."""
    if options.control is None:
        return None
    from kafka_share_proxy.conformance.target.control import open_control, serve_control

    listeners = await open_control(*options.control)
    nursery.start_soon(serve_control, listeners, server)
    port = listeners[0].socket.getsockname()[1]
    return f"http://{options.control[0]}:{port}"


def _announce(server: TargetServer, options: RunOptions, control: str | None, out: TextIO) -> None:
    """Write the addresses: one line of JSON, to stdout and to the file."""
    nodes = {node_id: f"{host}:{port}" for node_id, (host, port) in server.cluster.addresses.items()}
    ready: dict[str, Any] = {"bootstrap": nodes[1], "nodes": nodes}
    if control is not None:
        ready["control"] = control
    line = json.dumps(ready)
    if options.ready_file is not None:
        path = Path(options.ready_file)
        part = path.with_name(path.name + ".part")
        part.write_text(line + "\n", encoding="utf-8")
        part.replace(path)
    print(line, file=out, flush=True)


async def _until_ended(options: RunOptions) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_until_signal, nursery.cancel_scope)
        if options.until_stdin_closes:
            nursery.start_soon(_until_stdin_closes, nursery.cancel_scope)


async def _until_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def _until_stdin_closes(scope: trio.CancelScope) -> None:
    def read() -> None:
        while sys.stdin.buffer.read(STDIN_BYTES):
            pass

    await trio.to_thread.run_sync(read, abandon_on_cancel=True)
    scope.cancel()


def _report(server: TargetServer, options: RunOptions, err: TextIO) -> int:
    """Write the reports, and a line for each finding to stderr. Return the exit status."""
    from kafka_share_proxy.conformance.judge import reports

    findings = server.findings()
    for finding in findings:
        print(f"{finding.rule.severity} {finding.rule.id}: {finding.detail} ({finding.count} times)", file=err)
    if options.junit is not None:
        text = reports.as_junit(findings, server.judge.rules)
        Path(options.junit).write_text(text, encoding="utf-8")
    if options.report is not None:
        text = json.dumps(reports.as_json(findings), indent=2)
        Path(options.report).write_text(text + "\n", encoding="utf-8")
    is_wrong = any(finding.rule.severity == "error" for finding in findings)
    return 1 if server.failures or (options.strict and is_wrong) else 0
