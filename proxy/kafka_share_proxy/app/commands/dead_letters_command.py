"""Command `dead-letters`: list the dead letters of a share group, and redrive them; no proxy need run."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import trio
from rich.console import Console
from rich.table import Table

from kafka_share_proxy.app.commands import at_brokers, terminal
from kafka_share_proxy.app.commands.terminal import cell
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.committing_producer import TransactionFailed
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.sharegroups.dead_letters.group_topic import topic_of
from kafka_share_proxy.sharegroups.dead_letters.letter_log import Condition, StoredLetter
from kafka_share_proxy.sharegroups.dead_letters.redrive import Redrive, RedriveFailed, Redriven
from kafka_share_proxy.wire.key_text import key_text

T = TypeVar("T")

ROWS_MAX = 100
"""Rows of the table without --limit. --json has no such limit."""
TRIES, PAUSE_S = 5, 1.0
"""Attempts of a redrive whose transaction failed, and seconds between them."""


def conditions_of(texts: Sequence[str]) -> list[Condition]:
    """Parse the texts of --where. Raises BadCondition."""
    return [Condition.parse(text) for text in texts]


def show(
    config: Config,
    group: str,
    topic: str | None,
    *,
    limit: int | None,
    conditions: Sequence[Condition],
    as_json: bool,
    console: Console | None = None,
) -> None:
    """Print the dead letters that were not redriven yet. Raises ProxyError."""
    console = console or terminal.console()
    rows_max = limit if limit is not None or as_json else ROWS_MAX
    table = Table("AT", "RECORD", "DELIVERIES", "ERROR", "KEY", box=None, pad_edge=False)

    def add(letter: StoredLetter) -> None:
        if as_json:
            console.out(json.dumps(as_values(letter)), highlight=False)
        else:
            table.add_row(*map(cell, as_row(letter)))

    async def read(nodes: OpenNodes, name: str) -> int:
        shown = 0
        async with aclosing(
            Redrive(nodes, group, name, conditions=conditions, is_dry=True, wall_ms=_wall_ms).pending()
        ) as letters:
            async for letter in letters:
                if shown == rows_max:
                    return -1
                add(letter)
                shown += 1
        return shown

    shown = _run(config, group, topic, read)
    if as_json:
        return
    console.print(table if table.row_count else cell(f"Group {group!a} has no dead letters that were not redriven."))
    if shown < 0:
        console.print(cell(f"... and more: only the first {rows_max} are shown (--limit, --json)."))


def redrive(
    config: Config,
    group: str,
    topic: str | None,
    *,
    to: str | None,
    limit: int | None,
    conditions: Sequence[Condition],
    is_dry: bool,
) -> list[str]:
    """Redrive, and return sentences about the result. Raises ProxyError."""

    async def attempt(nodes: OpenNodes, name: str) -> Redriven:
        done = Redriven()
        for number in range(TRIES):
            rest = None if limit is None else limit - done.total
            one = Redrive(nodes, group, name, to=to, limit=rest, conditions=conditions, is_dry=is_dry, wall_ms=_wall_ms)
            try:
                return _sum(done, await one.run())
            except TransactionFailed:
                if number == TRIES - 1:
                    raise
            done = _sum(done, one.totals)
            nodes.forget_leaders()
            await trio.sleep(PAUSE_S)
        return done

    return sentences(_run(config, group, topic, attempt), is_dry=is_dry)


def sentences(totals: Redriven, *, is_dry: bool) -> list[str]:
    """Return the result of a redrive in words."""
    verb = "would be redriven" if is_dry else "were redriven"
    lines = [f"{count} dead letters {verb} to {topic}" for topic, count in sorted(totals.records.items())]
    lines = lines or [f"no dead letters {verb}"]
    if totals.missing:
        lines.append(f"{totals.missing} stay: they have no key and value, and their records no longer exist")
    if totals.not_chosen:
        lines.append(f"{totals.not_chosen} stay: --where excludes them")
    return lines


def as_values(letter: StoredLetter) -> dict[str, Any]:
    """Return a line of --json. Names stay, new ones may be added."""
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "deliveries": letter.deliveries,
        "error": letter.error,
        "written_ms": letter.record.timestamp,
        "at": {
            "topic": letter.topic_partition.topic,
            "partition": letter.topic_partition.partition,
            "offset": letter.record.offset,
        },
        "key": None if letter.record.key is None else key_text(letter.record.key),
        "is_copied": letter.is_copied,
    }


def as_row(letter: StoredLetter) -> tuple[str, ...]:
    """Return a row of the table."""
    at = f"{letter.topic_partition.topic}-{letter.topic_partition.partition}:{letter.record.offset}"
    record = f"{letter.topic}-{letter.partition}:{letter.offset}"
    key = "-" if letter.record.key is None else key_text(letter.record.key)
    return at, record, str(letter.deliveries), letter.error, key


def _wall_ms() -> int:
    return int(time.time() * 1000)


def _sum(first: Redriven, second: Redriven) -> Redriven:
    topics = first.records.keys() | second.records.keys()
    return Redriven(
        {topic: first.records.get(topic, 0) + second.records.get(topic, 0) for topic in topics},
        second.missing,
        second.not_chosen,
    )


def _run(config: Config, group: str, topic: str | None, work: Callable[[OpenNodes, str], Awaitable[T]]) -> T:
    """Run `work` with open connections and the topic of the group's dead letters. Raises ProxyError."""

    async def main() -> T:
        async with at_brokers.open_nodes(config) as nodes:
            name = topic or await topic_of(nodes.client, group)
            if not name:
                raise RedriveFailed(f"group {group!a} has no topic for dead letters: name it with --topic")
            return await work(nodes, name)

    return at_brokers.run(main)
