"""Commands, flags and exit statuses: 0 all went well, 1 it did not work, 2 the command or the settings are wrong.

What a command needs is imported when it runs: `serve` stays small, `--version` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import typer

from kafka_share_proxy.app.commands.exits import FAILED, MISUSED, fail, outcome
from kafka_share_proxy.app.commands.lazy_groups import LazyGroups
from kafka_share_proxy.app.commands.setting_flags import SettingFlags, reads_settings, serves_settings
from kafka_share_proxy.app.commands.terminal import printable
from kafka_share_proxy.app.installed import DISTRIBUTION
from kafka_share_proxy.feature.errors import ConfigError

if TYPE_CHECKING:
    from kafka_share_proxy.app.commands import views_command
    from kafka_share_proxy.wire.values import Address

T = TypeVar("T")


def _views() -> typer.Typer:
    return views_app


def _conformance() -> typer.Typer:
    from kafka_share_proxy.app.commands import conformance_command

    return conformance_command.app


def _pipeline() -> typer.Typer:
    from kafka_share_proxy.app.commands import pipeline_command

    return pipeline_command.app


class _Groups(LazyGroups):
    LOADERS: ClassVar = {"views": _views, "conformance": _conformance, "pipeline": _pipeline}


app = typer.Typer(
    name=DISTRIBUTION,
    cls=_Groups,
    help="Share groups with lock renewal and key-range views for a Kafka cluster; everything else is forwarded.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunningProxy = Annotated[
    str,
    typer.Option("--admin", metavar="HOST:PORT", envvar="KSP_ADMIN", help="The admin listener of the running proxy."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@app.command()
@serves_settings
def serve(
    *,
    settings: SettingFlags,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="CLIENT_ID|ADDRESS",
            help="Trace this client from the start on; the command trace prints it (trace.client).",
        ),
    ] = None,
) -> None:
    """Run the proxy until SIGTERM or SIGINT."""
    from kafka_share_proxy.app.workers import start

    traced = replace(settings, flags=settings.flags | {"trace.client": trace})
    raise typer.Exit(outcome(lambda: start.serve(partial(traced.load, listens=True))))


@app.command()
@serves_settings
def check(
    *,
    settings: SettingFlags,
    apis: Annotated[bool, typer.Option("--apis", help="Show the versions of every API as well.")] = False,
) -> None:
    """Dial the cluster, try every port, and show what clients will see; status 1 if it would not work."""
    config = outcome(partial(settings.load, listens=True))
    from kafka_share_proxy.app.commands import check as checking

    works = outcome(lambda: checking.run(config, apis=apis))
    raise typer.Exit(0 if works else FAILED)


@app.command()
def decode(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Captured frames, hex or binary; - reads stdin.")],
    response_to: Annotated[
        str | None,
        typer.Option(metavar="API:VERSION", help="They are responses to such requests, by name or key (Metadata:12)."),
    ] = None,
    requests: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Their requests, captured on the same connection."),
    ] = None,
) -> None:
    """Print captured frames, requests or responses, as a tree."""
    from kafka_share_proxy.app.commands import decode_command

    def show() -> None:
        request_bytes = b"" if requests is None else _captured(requests)
        decode_command.show(_captured(file), decode_command.api_version(response_to), request_bytes)

    outcome(show)


@app.command()
def groups(
    group: Annotated[str | None, typer.Argument(metavar="GROUP", help="One group, with its members and locks.")] = None,
    action: Annotated[
        str | None,
        typer.Argument(metavar="[hand-over|take-back]", help="Move GROUP to the share groups of the brokers, or back."),
    ] = None,
    admin: RunningProxy = "",
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every second, until interrupted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status of the admin listener.")] = False,
    release: Annotated[
        str | None, typer.Option(metavar="MEMBER", help="Take everything back that this member of GROUP holds.")
    ] = None,
    wait: Annotated[
        int, typer.Option(min=0, max=900, metavar="SECONDS", help="Moves: wait for unsettled records.")
    ] = 60,
    force: Annotated[bool, typer.Option("--force", help="Moves: unsettled records are delivered again.")] = False,
) -> None:
    """Show who holds which records of the share groups of a running proxy, or move a group to the brokers or back."""
    from kafka_share_proxy.app.commands import groups_command as showing

    address = _admin_address(admin)
    if release is not None and group is None:
        fail("--release needs the GROUP as well", MISUSED)
    if action is not None and action not in showing.ACTIONS:
        fail(f"{action} is no action on a group: there are {', '.join(showing.ACTIONS)}", MISUSED)
    if action is not None and group is not None:
        print(outcome(lambda: showing.move(address, group, action, wait, force=force)))
    elif release is not None and group is not None:
        print(outcome(lambda: showing.release(address, group, release)))
    else:
        outcome(lambda: showing.show(address, group, as_json=as_json, watch=watch))


@app.command()
def reload(admin: RunningProxy = "") -> None:
    """Let a running proxy read its settings, certificates and authorities again; connections stay."""
    from kafka_share_proxy.app.commands import reload_command

    address = _admin_address(admin)
    print(outcome(lambda: reload_command.reload(address)))


@app.command()
def upgrade(admin: RunningProxy = "") -> None:
    """Replace the workers of a running proxy by those of the installed version, without an outage."""
    from kafka_share_proxy.app.commands import reload_command

    address = _admin_address(admin)
    print(outcome(lambda: reload_command.upgrade(address)))


@app.command()
def trace(
    client: Annotated[
        str | None, typer.Argument(metavar="CLIENT", help="Client id or address. None: the trace that there is.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="30s, 5m, 1h; unset: trace.seconds of the proxy.")
    ] = None,
    admin: RunningProxy = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each request and response.")] = False,
) -> None:
    """Print the decoded requests and responses of one client of a running proxy, without contents of records."""
    from kafka_share_proxy.app.commands import trace_command

    address = _admin_address(admin)
    outcome(lambda: trace_command.run(address, client, duration, as_json=as_json))


@app.command()
@reads_settings
def commits(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group.")],
    holes: Annotated[bool, typer.Option("--holes", help="Show what is not done in front of what is.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    *,
    settings: SettingFlags,
) -> None:
    """Show what a group has committed, in order and out of order; no proxy need run."""
    from kafka_share_proxy.app.commands import commits_command

    outcome(lambda: commits_command.run(settings.load(), group, holes=holes, as_json=as_json))


@app.command("dead-letters")
@reads_settings
def dead_letters(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A share group.")],
    action: Annotated[str, typer.Argument(metavar="list|redrive", help="Show them, or produce the records again.")],
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Redrive to this topic, not to that of each record.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Topic of the dead letters; unset: that of the group's settings."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N dead letters.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=TEXT", help="error=rejected|exhausted, topic=, partition=, offset=, deliveries=."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="List as JSON, a line for each.")] = False,
    *,
    settings: SettingFlags,
) -> None:
    """List the dead letters of a share group, or redrive them: each record once; no proxy need run."""
    from kafka_share_proxy.app.commands import dead_letters_command as letters
    from kafka_share_proxy.sharegroups.dead_letters.letter_log import BadCondition

    if action not in ("list", "redrive"):
        fail(f"dead-letters {group} {action}: write list or redrive", MISUSED)

    def run() -> None:
        config, conditions = settings.load(), letters.conditions_of(where or ())
        if action == "list":
            letters.show(config, group, topic, limit=limit, conditions=conditions, as_json=as_json)
        else:
            _print(letters.redrive(config, group, topic, to=to, limit=limit, conditions=conditions, is_dry=dry_run))

    outcome(run, BadCondition)


views_app = typer.Typer(
    help="Views: slices of a topic's partitions, as topics that any consumer reads.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ViewTopics = Annotated[list[str], typer.Argument(metavar="VIEW...", help="Names as __view.r8.orders.")]


@views_app.command("create")
@reads_settings
def views_create(topics: ViewTopics, *, settings: SettingFlags) -> None:
    """Make views before anybody reads them."""
    from kafka_share_proxy.app.commands import views_command

    _print(_at_brokers(settings, lambda session: views_command.create(session, topics)))


@views_app.command("list")
@reads_settings
def views_list(*, settings: SettingFlags) -> None:
    """Show the views and plans there are."""
    from kafka_share_proxy.app.commands import views_command

    async def show(session: views_command.ViewsSession) -> None:
        views_command.show_list(session, await views_command.listed(session))

    _at_brokers(settings, show)


@views_app.command("grow")
@reads_settings
def views_grow(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[VIEW...]", help="All views if none is named.")] = None,
    *,
    settings: SettingFlags,
) -> None:
    """Give views the partitions their bases have got; running proxies do so by themselves."""
    from kafka_share_proxy.app.commands import views_command

    _print(_at_brokers(settings, lambda session: views_command.grow(session, topics or [])))


@views_app.command("delete")
@reads_settings
def views_delete(topics: ViewTopics, *, settings: SettingFlags) -> None:
    """Delete views, with the offsets that groups have committed on them."""
    from kafka_share_proxy.app.commands import views_command

    _print(_at_brokers(settings, lambda session: views_command.delete(session, topics)))


@views_app.command("plan")
@reads_settings
def views_plan(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Ranges of the hash space, as JSON.")],
    name: Annotated[
        str | None, typer.Option(metavar="PLAN", help="What views call it (__view.pPLAN.orders); unset: as the file.")
    ] = None,
    dry_run: DryRun = False,
    *,
    settings: SettingFlags,
) -> None:
    """Check a plan and store it; it never changes under its name."""
    from kafka_share_proxy.app.commands import views_command

    plan_id = name or Path(file).name.split(".")[0]
    text = outcome(lambda: _captured(file))
    line = _at_brokers(settings, lambda session: views_command.plan(session, plan_id, text, dry_run=dry_run))
    _print([line])


@views_app.command("migrate")
@reads_settings
def views_migrate(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A group without members.")],
    old: Annotated[str, typer.Option("--from", metavar="TOPIC", help="A view it has read, or the base.")],
    new: Annotated[str, typer.Option("--to", metavar="TOPIC", help="A view of the same base, or the base.")],
    dry_run: DryRun = False,
    *,
    settings: SettingFlags,
) -> None:
    """Let a group go on with another view: every slot starts where the slowest was, at least once."""
    from kafka_share_proxy.app.commands import views_command

    topic, offsets = _at_brokers(
        settings, lambda session: views_command.migrate(session, group, old, new, dry_run=dry_run)
    )
    _print([f"{topic}-{partition}: {offset}" for partition, offset in sorted(offsets.items())])
    _print([f"{len(offsets)} partitions of {topic} {'would start' if dry_run else 'start'} there for group {group}"])


def _at_brokers(settings: SettingFlags, command: Callable[[views_command.ViewsSession], Coroutine[Any, Any, T]]) -> T:
    from kafka_share_proxy.app.commands import views_command
    from kafka_share_proxy.views.model.names import BadViewName
    from kafka_share_proxy.views.model.plans import BadPlan

    return outcome(lambda: views_command.run(settings.load(), command), BadViewName, BadPlan)


def _print(lines: list[str]) -> None:
    for line in lines:
        print(printable(line))


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[
        bool, typer.Option("--version", help="Print version, commit and kernels, and end.", is_eager=True)
    ] = False,
) -> None:
    """Share groups with lock renewal for a Kafka cluster that has none; everything else is forwarded."""
    if show:
        from kafka_share_proxy.app import build_info

        _print(list(build_info.lines()))
        raise typer.Exit


def main() -> None:
    """Run the command `kafka-share-proxy`."""
    app()


def _admin_address(admin: str) -> Address:
    from kafka_share_proxy.app.settings.hostports import parse_address

    if not admin:
        fail("--admin HOST:PORT is missing: the admin listener of the running proxy (or KSP_ADMIN)", MISUSED)
    try:
        return parse_address(admin)
    except ValueError as error:
        fail(f"--admin {admin}: {error}", MISUSED)


def _captured(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
