"""The commands `pipeline ...`: jobs on Spark. pyspark is loaded when one of them runs, and never by `serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from proxy.app.broker_flags import Flags, dials_brokers
from proxy.wire.errors import ConfigError, ProxyError

if TYPE_CHECKING:
    from proxy.app.config import Config

T = TypeVar("T")

FAILED, MISUSED = 1, 2
PLAN_FILE = "range_plan.json"

app = typer.Typer(
    help="Data pipeline on Spark: plan key ranges from the load (needs kafka-share-proxy[spark]).",
    no_args_is_help=True,
)


@app.callback()
def pipeline() -> None:
    """Data pipeline on Spark: plan key ranges from the load (needs kafka-share-proxy[spark])."""


Bootstrap = Annotated[
    str,
    typer.Option(metavar="HOST:PORT,...", envvar="KSP_PIPELINE_BOOTSTRAP", help="Where records are read: the proxy."),
]
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


@app.command()
@dials_brokers
def plan(
    topic: Annotated[str, typer.Option("--from", metavar="TOPIC", help="Whose records tell the load.")],
    ranges: Annotated[int, typer.Option("-n", metavar="N", help="Key ranges to make.")],
    bootstrap: Bootstrap,
    weight: Annotated[str, typer.Option(metavar="rows|bytes", help="What is to be balanced.")] = "rows",
    sample: Annotated[float, typer.Option(metavar="SHARE", help="Of the offsets that are read: 0.01 is 1 %.")] = 1.0,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The plan.")] = PLAN_FILE,
    store: Annotated[
        str | None, typer.Option(metavar="PLAN", help="Store it as well, for views __view.pPLAN.TOPIC.")
    ] = None,
    option: Options = None,
    master: Master = None,
    conf: Conf = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="The proxy's settings, to store it.")
    ] = None,
    *,
    brokers: Flags,
) -> None:
    """Cut the space of key hashes into ranges of about equal load; what `views plan` reads."""
    loaded = _guarded(lambda: _settings(config, brokers)) if store is not None else None
    given = {"bootstrap": bootstrap, "topic": topic, **_assignments("--option", option)}

    def work() -> str:
        from proxy.pipeline import plan_job, planner, session

        with session.session_of("pipeline plan", master, _assignments("--conf", conf)) as spark:
            made = plan_job.plan_of_topic(spark, given, ranges, weight, sample)
        text = planner.written(made.plan, made.topic, made.made_from)
        for line in plan_job.lines_of(made):
            print(line)  # noqa: T201
        return text

    text = _guarded(work)
    _replace(Path(output), text)
    print(f"{output}: written")  # noqa: T201
    if loaded is not None and store is not None:
        _guarded(lambda: _store(loaded, store, topic, text))


def _settings(file: str | None, brokers: Flags) -> Config:
    from proxy.app import config_loading

    return config_loading.load(dict(brokers), path=file, listens=False)


def _store(config: Config, plan_id: str, topic: str, text: str) -> None:
    from proxy.app import views_command

    print(views_command.run(config, lambda at: views_command.plan(at, plan_id, text.encode(), dry_run=False)))  # noqa: T201
    print(  # noqa: T201
        f"let a group without members go on with it: kafka-share-proxy views migrate GROUP "
        f"--from {topic} --to __view.p{plan_id}.{topic}"
    )


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole: who reads it meanwhile has the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        _fail(f"cannot write {path}: {error.strerror}", FAILED)


def _assignments(flag: str, given: list[str] | None) -> Mapping[str, str]:
    found = {}
    for each in given or ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            _fail(f"{flag} {each}: write KEY=VALUE", MISUSED)
        found[key.strip()] = value
    return found


def _guarded(work: Callable[[], T]) -> T:
    """The result; what a person can mend is told without a traceback."""
    try:
        return work()
    except ConfigError as error:
        _fail(str(error), MISUSED)
    except ProxyError as error:
        from proxy.pipeline.options import BadOption
        from proxy.views.model.plans import BadPlan

        _fail(str(error), MISUSED if isinstance(error, BadOption | BadPlan) else FAILED)


def _fail(text: str, status: int) -> NoReturn:
    print(f"kafka-share-proxy: {text}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(status)
