"""Command `conformance run`: test any cluster, show the results, and write reports."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_share_proxy.app.commands.exits import FAILED, MISUSED, fail, outcome
from kafka_share_proxy.app.commands.setting_flags import SettingFlags

if TYPE_CHECKING:
    from rich.console import Console

    from kafka_share_proxy.app.settings.config import Config
    from kafka_share_proxy.conformance.suite.cases import Case
    from kafka_share_proxy.conformance.suite.dialling import Dialling
    from kafka_share_proxy.conformance.suite.outcomes import Outcome, RunReport

CREATED = "conformance-*"
"""Names of what a run creates."""

SuiteNames = Annotated[
    list[str] | None, typer.Option("--suite", metavar="NAME", help="Run the cases of this suite; may be repeated.")
]
Patterns = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="PATTERN", help="Run cases whose id contains or matches this; may be repeated."),
]


def run(
    *,
    settings: SettingFlags,
    suite: SuiteNames = None,
    only: Patterns = None,
    list_cases: Annotated[bool, typer.Option("--list", help="Show the cases and send nothing.")] = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report as JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report as one HTML file.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report as JSON.")] = None,
    concurrent: Annotated[int, typer.Option(min=1, max=64, help="Cases that run at the same time.")] = 8,
) -> None:
    """Test a cluster against the rules of Kafka's protocol; status 1 if a case failed."""
    from kafka_share_proxy.app.commands import terminal

    cases = _selected(suite or [], only or [])
    console = terminal.console()
    if list_cases:
        for case in cases:
            console.print(f"{case.id}  {case.sentence}  [{case.source}]", markup=False, soft_wrap=True, highlight=False)
        return
    report = _run(outcome(lambda: _dialling(settings.load())), cases, concurrent, console)
    _write(report, junit, html, json)
    if report.failed:
        raise typer.Exit(FAILED)


def _selected(suites: list[str], patterns: list[str]) -> list[Case]:
    from kafka_share_proxy.conformance.suite.all_cases import ALL_CASES

    if unknown := sorted(set(suites) - set(ALL_CASES.suites)):
        fail(f"--suite {unknown[0]}: there is no such suite; there are {', '.join(ALL_CASES.suites)}", MISUSED)
    cases = ALL_CASES.select(suites, patterns)
    if not cases:
        fail(f"no case matches {' '.join(patterns)}; --list shows the cases", MISUSED)
    return cases


def _dialling(config: Config) -> Dialling:
    from kafka_share_proxy.app.settings import tls_contexts
    from kafka_share_proxy.conformance.suite.dialling import Dialling, Login

    upstream = config.upstream
    login = None
    if upstream.sasl.mechanism is not None:
        login = Login(upstream.sasl.mechanism, upstream.sasl.username or "", upstream.sasl.secret)
    tls = tls_contexts.towards_brokers(upstream.tls)
    return Dialling(upstream.bootstrap, None if tls is None else tls.current, upstream.tls.server_name, login)


def _run(dialling: Dialling, cases: list[Case], concurrent: int, console: Console) -> RunReport:
    import trio
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kafka_share_proxy.app.commands import terminal
    from kafka_share_proxy.conformance.suite import report_text
    from kafka_share_proxy.conformance.suite.runner import run_suite

    columns = (TextColumn("cases"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("cases", total=len(cases))

        def show(result: Outcome) -> None:
            progress.advance(task)
            _show(result, progress.console)

        report = outcome(lambda: trio.run(partial(run_suite, dialling, cases, show, concurrent)))
    console.print(report_text.table(report))
    for name, reason in report.missing.items():
        console.print(terminal.cell(f"not offered: {name} ({reason})"))
    if report.left_behind:
        console.print(terminal.cell(f"topics and groups {CREATED} may be left: {report.left_behind}"))
    return report


def _show(result: Outcome, console: Any) -> None:
    """Print a case that failed, in one line and a half."""
    from kafka_share_proxy.app.commands import terminal
    from kafka_share_proxy.conformance.suite.outcomes import Status

    if result.status is Status.FAILED:
        console.print(terminal.cell(f"FAILED {result.case.id}: {result.case.sentence}"))
        line = f"       {result.reason}: expected {result.expected}, seen {result.actual}"
        console.print(terminal.cell(line))


def _write(report: RunReport, junit: Path | None, html: Path | None, json: Path | None) -> None:
    from kafka_share_proxy.conformance.suite import report_html, report_json, report_junit

    for path, text_of in (
        (junit, report_junit.as_junit),
        (html, report_html.as_html),
        (json, report_json.as_json),
    ):
        if path is not None:
            try:
                path.write_text(text_of(report), encoding="utf-8")
            except OSError as error:
                fail(f"cannot write {path}: {error.strerror}", FAILED)
