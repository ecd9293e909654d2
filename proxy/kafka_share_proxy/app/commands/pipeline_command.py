"""The commands `pipeline ...`: jobs on Spark. pyspark is loaded when one of them runs, and never by `serve`."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kafka_share_proxy.app.commands.exits import FAILED, INTERRUPTED, MISUSED, fail
from kafka_share_proxy.app.commands.setting_flags import SettingFlags, reads_settings
from kafka_share_proxy.feature.errors import ConfigError

if TYPE_CHECKING:
    from kafka_share_proxy.app.settings.config import Config

T = TypeVar("T")

DAY = r"\d{4}-\d\d-\d\d"
PLAN_FILE = "range_plan.json"
DEMO_NEEDS = ("pyspark", "pyarrow", "numpy", "confluent_kafka", "maven_artifact")
"""Packages of the extras [spark] and [demo]."""

NO_ICEBERG = (
    "there is no Iceberg for this Spark: its runtime ends with Spark 4.1 (1.12.0), and does not load in 4.2 and 4.3; "
    "write parquet or delta"
)
"""IncompatibleClassChangeError of SparkView, measured with iceberg-spark-runtime-4.1_2.13 1.12.0 on 4.2.0 and 4.3.0."""

app = typer.Typer(
    help=r"Data pipeline on Spark: see deliveries, plan key ranges, load topics (needs kafka-share-proxy\[spark]).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def pipeline() -> None:
    r"""Data pipeline on Spark: see deliveries, plan key ranges, load topics (needs kafka-share-proxy\[spark])."""


_FLAGS = ("--bootstrap", "--bootstrap-server")
_BOOTSTRAP = partial(typer.Option, *_FLAGS, metavar="HOST:PORT,...", envvar="KSP_PIPELINE_BOOTSTRAP")
Bootstrap = Annotated[str, _BOOTSTRAP(help="Where records are read: the proxy.")]
MaybeBootstrap = Annotated[str, _BOOTSTRAP(help="Where a topic is read: the proxy.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="Any option of the source (sasl.mechanism=PLAIN); may be repeated."
    ),
]
Master = Annotated[
    str | None, typer.Option(metavar="local[N]", help="Spark's master; unset: spark-submit's, else local[*].")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Any setting of Spark; may be repeated.")
]


Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="parquet|delta", help="Of the table, if it is new; delta needs kafka-share-proxy\\[delta]."
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show the settings of Spark, what it logs, and tracebacks of errors.")
]


@app.command()
@reads_settings
def plan(
    source: Annotated[str, typer.Option("--from", metavar="LAKE|TOPIC", help="Tables of the audit, or records.")],
    ranges: Annotated[int, typer.Option("-n", metavar="N", help="Key ranges to make.")],
    weight: Annotated[str, typer.Option(metavar="rows|bytes|hold", help="What to balance.")] = "rows",
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic in the tables; unset: the only one.")
    ] = None,
    sample: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of a topic's offsets to read (0.01: 1 %).")
    ] = 1.0,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Plan file.")] = PLAN_FILE,
    store: Annotated[
        str | None, typer.Option(metavar="PLAN", help="Also store the plan, for views __view.pPLAN.TOPIC.")
    ] = None,
    bootstrap: MaybeBootstrap = "",
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
    *,
    settings: SettingFlags,
) -> None:
    """Cut the space of key hashes into ranges of about equal load. `views plan` stores the plan."""
    config = _guarded(settings.load) if store is not None else None
    option_values = {"bootstrap": bootstrap, "topic": source, **_assignments("--option", option)}

    def work() -> tuple[str, str]:
        from kafka_share_proxy.pipeline import session
        from kafka_share_proxy.pipeline.plan import key_range_planner, plan_job
        from kafka_share_proxy.pipeline.source.options import read_options
        from kafka_share_proxy.pipeline.tables.lake import Lake

        is_lake = "/" in source or Path(source).is_dir()
        if not is_lake:
            read_options(option_values)
        with session.session_of("pipeline plan", master, _assignments("--conf", conf), verbose=verbose) as spark:
            if is_lake:
                planned = plan_job.plan_of_lake(Lake(spark, source), topic, ranges, weight)
            else:
                planned = plan_job.plan_of_topic(spark, option_values, ranges, weight, sample)
        for line in plan_job.report_lines(planned):
            typer.echo(line)
        return planned.topic, key_range_planner.plan_text(planned.plan, planned.topic, planned.made_from)

    planned, text = _guarded(work, verbose=verbose)
    _replace(Path(output), text)
    typer.echo(f"{output}: written")
    if config is not None and store is not None:
        _guarded(lambda: _store(config, store, planned, text), verbose=verbose)


@app.command()
def audit(
    source: Annotated[str, typer.Option("--in", metavar="DIR|TOPIC", help="Folder with audit files, or a topic.")],
    out: Annotated[str, typer.Option(metavar="LAKE", help="Folder of the tables.")],
    day: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="Only events of that day (UTC).")] = None,
    bootstrap: MaybeBootstrap = "",
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Make tables of audit events: deliveries, members by hour, renewals, load by key range, hot keys."""
    option_values = {"bootstrap": bootstrap, "topic": source, **_assignments("--option", option)}
    _check_day(day)

    def work() -> None:
        from kafka_share_proxy.pipeline import session
        from kafka_share_proxy.pipeline.audit import audit_job, small_input
        from kafka_share_proxy.pipeline.source.options import BadOption, read_options

        is_folder = Path(source).is_dir()
        if not is_folder:
            if "/" in source:
                fail(f"--in {source}: there is no such folder", FAILED)
            try:
                read_options(option_values)
            except BadOption as error:
                raise BadOption(f"--in {source} is no folder here, and to read a topic of that name: {error}") from None
        quick = is_folder and small_input.is_small(Path(source), Path(out, audit_job.EVENTS))
        confs = _assignments("--conf", conf)
        with session.session_of("pipeline audit", master, confs, quick=quick, verbose=verbose) as spark:
            lines = (
                audit_job.event_lines_in_folder(spark, source)
                if is_folder
                else audit_job.event_lines_in_topic(spark, option_values)
            )
            for line in audit_job.report_lines(audit_job.run(spark, lines, out, day, _note)):
                typer.echo(line)

    _guarded(work, verbose=verbose)


@app.command()
def ingest(
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Topic to read.")],
    ranges: Annotated[str, typer.Option(metavar="N|PLAN", help="Even key ranges, or a plan file; each is a task.")],
    out: Annotated[str, typer.Option(metavar="LAKE", help="Folder of the tables; this one is records.")],
    checkpoint: Annotated[str, typer.Option(metavar="DIR", help="Checkpoint of the stream: its positions.")],
    bootstrap: Bootstrap,
    once: Annotated[bool, typer.Option("--once", help="Stop at the current end of the topic.")] = False,
    table_format: Format = None,
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Load a topic into a table, each record once. Continues from its checkpoint, also with other ranges."""
    option_values = {"bootstrap": bootstrap, "topic": topic, **_assignments("--option", option)}
    _check_format(table_format)

    def work() -> None:
        from kafka_share_proxy.pipeline import session
        from kafka_share_proxy.pipeline.source.options import read_options
        from kafka_share_proxy.pipeline.tables import ingest_job

        read_options(option_values | ({"keyRanges": ranges} if ranges.isdecimal() else {"rangePlan": ranges}))
        settings = _assignments("--conf", conf)
        with session.session_of("pipeline ingest", master, settings, streaming=True, verbose=verbose) as spark:
            done = ingest_job.run(
                spark, option_values, ranges, out, checkpoint, _note, once=once, table_format=table_format
            )
        typer.echo(f"{done.rows} rows in {done.batches} batches")

    _guarded(work, verbose=verbose)


@app.command()
def share(
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Topic that the group reads.")],
    group: Annotated[str, typer.Option(metavar="GROUP", help="The share group; the job is one member of it.")],
    out: Annotated[str, typer.Option(metavar="LAKE", help="Folder of the tables; this one is share_records.")],
    checkpoint: Annotated[str, typer.Option(metavar="DIR", help="Checkpoint of the stream: acquired records.")],
    bootstrap: Bootstrap,
    once: Annotated[bool, typer.Option("--once", help="Stop at the current end of the topic.")] = False,
    table_format: Format = None,
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Load what a share group delivers into a table, next to its other members, and acknowledge what is written."""
    option_values = {"bootstrap": bootstrap, "topic": topic, "group": group, **_assignments("--option", option)}
    _check_format(table_format)

    def work() -> None:
        from kafka_share_proxy.pipeline import session
        from kafka_share_proxy.pipeline.share import share_job
        from kafka_share_proxy.pipeline.share.share_options import read_share_options

        read_share_options(option_values)
        settings = _assignments("--conf", conf)
        with session.session_of("pipeline share", master, settings, streaming=True, verbose=verbose) as spark:
            done, totals = share_job.run(
                spark, option_values, out, checkpoint, _note, once=once, table_format=table_format
            )
        typer.echo(f"{done.rows} rows in {done.batches} batches; {totals.acknowledged} offsets acknowledged")

    _guarded(work, verbose=verbose)


@app.command()
def backfill(
    tokens: Annotated[
        str, typer.Option(metavar="FILE", help="Output of `commits GROUP --holes --json`: offsets to read.")
    ],
    out: Annotated[str, typer.Option(metavar="LAKE", help="Folder of the tables; this one is records.")],
    bootstrap: Bootstrap,
    commit: Annotated[
        bool, typer.Option("--commit", help="Then commit the offsets for the group, which must have no members.")
    ] = False,
    table_format: Format = None,
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Load what a group has skipped into the same table as `ingest`."""
    option_values = {"bootstrap": bootstrap, **_assignments("--option", option)}
    _check_format(table_format)

    def work() -> None:
        from kafka_share_proxy.pipeline import session
        from kafka_share_proxy.pipeline.tables import backfill_job

        try:
            holes = backfill_job.read_tokens(Path(tokens).read_text())
        except OSError as error:
            fail(f"cannot read {tokens}: {error.strerror}", MISUSED)
        with session.session_of("pipeline backfill", master, _assignments("--conf", conf), verbose=verbose) as spark:
            done = backfill_job.run(spark, option_values, holes, out, _note, commit=commit, table_format=table_format)
        more = f"; {done.remaining} holes are left: run it again" if done.remaining else ""
        typer.echo(f"{done.rows} rows of {done.offsets} offsets that were not done{more}")

    _guarded(work, verbose=verbose)


@app.command()
def compact(
    lake: Annotated[str, typer.Option("--lake", metavar="LAKE", help="Folder of the tables.")],
    table: Annotated[str, typer.Option(metavar="records|share_records", help="The table.")] = "records",
    day: Annotated[str | None, typer.Option(metavar="YYYY-MM-DD", help="Only files of that day (UTC).")] = None,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Merge the small files of a table, day by day; streams may run. A reader may see rows twice for a moment."""
    _check_day(day)

    def work() -> None:
        from kafka_share_proxy.pipeline import session
        from kafka_share_proxy.pipeline.tables import compact_job

        if table not in compact_job.TABLES:
            fail(f"--table {table}: one of {', '.join(compact_job.TABLES)}", MISUSED)
        with session.session_of("pipeline compact", master, _assignments("--conf", conf), verbose=verbose) as spark:
            done = compact_job.run(spark, lake, table, day, _note)
        before, after = sum(each.files_before for each in done), sum(each.files_after for each in done)
        typer.echo(f"{len(done)} days: {before} files became {after}")

    _guarded(work, verbose=verbose)


@app.command()
def report(
    source: Annotated[str, typer.Option("--from", metavar="LAKE", help="Tables of the audit.")],
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="Only deliveries of this group.")] = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page with plots as well.")] = None,
    ranges: Annotated[
        int, typer.Option("-n", metavar="N", help="Ranges of the plan that is drawn next to the load.")
    ] = 16,
    master: Master = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Show deliveries, redeliveries, renewals and the load by key range."""

    def work() -> str:
        from rich.console import Console

        from kafka_share_proxy.pipeline import session
        from kafka_share_proxy.pipeline.plan import key_range_planner, plan_job
        from kafka_share_proxy.pipeline.report import report_job, report_page
        from kafka_share_proxy.pipeline.tables.lake import Lake

        with session.session_of("pipeline report", master, _assignments("--conf", conf), verbose=verbose) as spark:
            lake = Lake(spark, source)
            figures = report_job.gather(lake, group)
            plans = []
            for heat in figures.heats if html is not None else ():
                with suppress(key_range_planner.NothingToPlan):
                    plans.append(plan_job.plan_of_lake(lake, heat.topic, ranges))
        console = Console()
        for line in report_page.text(figures, console.width if console.is_terminal else report_page.WIDTH_ELSEWHERE):
            typer.echo(line)
        return "" if html is None else report_page.page(figures, plans)

    text = _guarded(work, verbose=verbose)
    if html is not None:
        _replace(Path(html), text)
        typer.echo(f"{html}: written")


@app.command()
def package(
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder of the package.")] = "pipeline-package",
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="Python on the machines of the cluster; unset: as here.")
    ] = None,
) -> None:
    """Write what a cluster needs for these jobs: a zip, an environment with libraries, and run.py for spark-submit."""

    def work() -> None:
        from kafka_share_proxy.app.commands import pipeline_package

        try:
            written_files = pipeline_package.run(Path(out), python)
        except OSError as error:
            fail(f"cannot write {out}: {error.strerror}", FAILED)
        for each in written_files:
            typer.echo(f"{each.path}: {each.size / 1e6:.1f} MB: {each.inside}")
        for line in pipeline_package.commands(Path(out), python):
            typer.echo(line)

    _guarded(work)


@app.command()
def demo(
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder of the results; empty or absent.")] = "pipeline-demo",
    keep: Annotated[bool, typer.Option("--keep", help="Leave Kafka and the proxy running at the end.")] = False,
) -> None:
    r"""Run the whole pipeline on a temporary Kafka: traffic, audit, plan, its view, report (needs \[spark,demo])."""
    missing = [each for each in DEMO_NEEDS if find_spec(each) is None]
    if missing:
        fail(f"the demo needs {', '.join(missing)}: install kafka-share-proxy[spark,demo]", FAILED)

    def work() -> None:
        from kafka_share_proxy.app.commands import pipeline_demo
        from kafka_share_proxy.pipeline import session

        session.find_java()
        pipeline_demo.run(Path(out), keep=keep)

    def until_stopped() -> None:
        try:
            work()
        except KeyboardInterrupt:
            typer.echo("\nStopped; Kafka and the proxy have ended.", err=True)
            raise typer.Exit(INTERRUPTED) from None

    _guarded(until_stopped)


def _check_day(day: str | None) -> None:
    if day is not None and not re.fullmatch(DAY, day):
        fail(f"--day {day}: write YYYY-MM-DD", MISUSED)


def _check_format(name: str | None) -> None:
    if name == "iceberg":
        fail(f"--format iceberg: {NO_ICEBERG}", MISUSED)
    if name not in (None, "parquet", "delta"):
        fail(f"--format {name}: write parquet or delta", MISUSED)


def _note(line: str) -> None:
    typer.echo(line, err=True)


def _store(config: Config, plan_id: str, topic: str, text: str) -> None:
    from kafka_share_proxy.app.commands import views_command

    line = views_command.run(config, lambda session: views_command.plan(session, plan_id, text.encode(), dry_run=False))
    typer.echo(line)
    typer.echo(
        f"let a group without members go on with it: kafka-share-proxy views migrate GROUP "
        f"--from {topic} --to __view.p{plan_id}.{topic}"
    )


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole, so that a reader never has parts of two."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}", FAILED)


def _assignments(flag: str, flags_given: list[str] | None) -> Mapping[str, str]:
    assignments = {}
    for each in flags_given or ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            fail(f"{flag} {each}: write KEY=VALUE", MISUSED)
        assignments[key.strip()] = value
    return assignments


def _guarded(work: Callable[[], T], *, verbose: bool = False) -> T:
    """Return the result. An error is one line that names the cause; `verbose` prints the traceback as well."""
    try:
        return work()
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except Exception as error:
        from kafka_share_proxy.consumer.options import ConfigurationError
        from kafka_share_proxy.pipeline.failures import one_line
        from kafka_share_proxy.pipeline.source.options import BadOption
        from kafka_share_proxy.views.model.plans import BadPlan

        if verbose:
            traceback.print_exc()
        misuse = ConfigError | ConfigurationError | BadOption | BadPlan
        fail(one_line(error), MISUSED if isinstance(error, misuse) else FAILED)
