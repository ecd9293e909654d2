"""Command `groups`: share groups of a running proxy, read from its admin listener."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafka_share_proxy.app.commands import terminal
from kafka_share_proxy.app.commands.terminal import cell, printable, printable_lines
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import Address

TIMEOUT_S = 10.0
WATCH_EVERY_S = 1.0
POLL_EVERY_S = 0.2
"""Seconds between two requests for the phase of a hand-over."""
ROWS_MAX = 50
"""Maximum number of rows of one table on a screen."""

Body = Mapping[str, Any]


class NoResponse(ProxyError):
    """The admin listener did not respond, or refused. The text has the reason."""


def fetch(admin: Address, path: str, method: str = "GET", timeout_s: float = TIMEOUT_S) -> Any:
    """Return the decoded JSON. Raises NoResponse."""
    connection = http.client.HTTPConnection(admin.host, admin.port, timeout=timeout_s)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = json.loads(response.read())
    except (OSError, http.client.HTTPException) as error:
        raise NoResponse(f"the admin listener at {admin} does not respond: {printable(str(error))}") from None
    except ValueError:
        raise NoResponse(f"{admin} is no admin listener of this proxy") from None
    finally:
        connection.close()
    if response.status >= http.client.BAD_REQUEST:
        raise NoResponse(printable_lines(_reason(body, response.status)))
    return body


def _reason(body: Any, status: int) -> str:
    error_body = body if isinstance(body, dict) else {}
    return str(error_body.get("reason") or ", ".join(error_body.get("reasons", ())) or f"status {status}")


def show(admin: Address, group: str | None, *, as_json: bool, watch: bool, console: Console | None = None) -> None:
    """Print all groups or one, as tables or JSON; with `watch` until interrupted. Raises NoResponse."""
    console = console or terminal.console()
    path = "/groups" if group is None else f"/groups/{quote(group, safe='')}"
    render = all_groups if group is None else one_group
    if as_json:
        terminal.print_json(console, fetch(admin, path))
        return
    if not watch:
        console.print(render(fetch(admin, path)))
        return
    try:
        with Live(render(fetch(admin, path)), console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while True:
                time.sleep(WATCH_EVERY_S)
                live.update(render(fetch(admin, path)), refresh=True)
    except KeyboardInterrupt:
        return


def release(admin: Address, group: str, member: str) -> str:
    """Return a sentence about the result. Raises NoResponse."""
    path = f"/groups/{quote(group, safe='')}/members/{quote(member, safe='')}/release"
    result = fetch(admin, path, "POST")
    durable = "" if result["durable"] else "; not durable yet"
    return printable(f"{result['released_records']} records of {member} in {group} are free again{durable}")


ACTIONS = {"hand-over": "the brokers", "take-back": "the proxy"}
"""Moves of a group, and the side that serves it afterwards."""


def move(admin: Address, group: str, action: str, wait_s: int, *, force: bool) -> str:
    """Hand a group over to the brokers or take it back, and return a text about the result. Raises NoResponse."""
    path = f"/groups/{quote(group, safe='')}/{action}"
    result = fetch(admin, f"{path}/{wait_s}" + ("/force" if force else ""), "POST")
    while result["phase"] not in ("handed over", "taken back", "refused"):
        time.sleep(POLL_EVERY_S)
        result = fetch(admin, path)
    if result["phase"] == "refused":
        stays = "the proxy" if action == "hand-over" else "the brokers"
        raise NoResponse(printable(f"{group} stays at {stays}: {result['reason']}"))
    side, seconds = ACTIONS[action], result["held_back_s"]
    lines = [f"{group} is served by {side}; new records were held back for {seconds:.1f} s"]
    lines += [
        f"delivered again: {each['topic']}-{each['partition']} offsets {each['start_offset']}-{each['end_offset']}"
        for each in result["delivered_again"]
    ]
    lines += [f"no longer in force: {name}" for name in result["settings_left_out"]]
    lines += [f"to do: {result['remark']}"] if result["remark"] else []
    return "\n".join(map(printable, lines))


def all_groups(body: Body) -> RenderableType:
    """Render one line per group."""
    columns = ("GROUP", "STATE", "MEMBERS", "PARTITIONS", "ACQUIRED", "RENEWED", "DELAYED", "DEAD WAITING", "BLOCKED")
    table = Table(*columns, box=None, pad_edge=False)
    for line in body["groups"]:
        figures = (line["members"], line["partitions"], line["acquired"], line["renewed"])
        waiting = (line.get("delayed", 0), line.get("dead_letters_waiting", 0))
        _add(table, line["group"], line["state"], *map(str, figures + waiting), _seconds(line["oldest_blocked_s"]))
    resting = body["resting_partitions"]
    notes = [f"{resting} idle partitions rest"] if resting else []
    if not body.get("complete", True):
        notes.append(f"This list is not complete: {printable(body['reason'])}.")
    return Group(table, *map(Text, notes)) if notes else table


def one_group(body: Body) -> RenderableType:
    """Render members, partitions and locks of a group."""
    title = Text(printable(f"{body['group']}  {body['state']}  epoch {body['epoch']}"))
    parts: list[RenderableType] = [title, "", _members(body), "", _partitions(body), "", _locks(body)]
    if body.get("blocked_keys"):
        parts += ["", _blocked_keys(body)]
    if letters := body.get("dead_letters"):
        reason = letters["not_written_because"]
        trouble = f"; not written at present: {reason}" if reason else ""
        waiting = sum(each.get("dead_letters_waiting", 0) for each in body["partitions"])
        figures = f"{letters['written']} written since the start of the proxy, {waiting} waiting"
        parts += ["", Text(printable(f"dead letters to {letters['topic']}: {figures}{trouble}"))]
    if body.get("delayed"):  # a proxy of an earlier version does not have it
        parts += ["", _delayed(body)]
    return Group(*parts)


def _members(body: Body) -> RenderableType:
    table = Table("MEMBER", "CLIENT", "HOST", "ASSIGNED", "ACQUIRED", "RENEWALS", "SESSION ENDS IN", box=None)
    for member in body["members"][:ROWS_MAX]:
        assigned = ", ".join(f"{name}:{terminal.number_ranges(parts)}" for name, parts in member["assigned"].items())
        _add(
            table,
            member["member"],
            member["client_id"],
            member["client_host"],
            assigned or "-",
            str(member["acquired"]),
            str(member["renewals_most"]),
            _seconds(member["session_ends_in_s"]),
        )
    return _more(table, len(body["members"]))


def _partitions(body: Body) -> RenderableType:
    table = Table("PARTITION", "START", "END", "FREE", "ACQUIRED", "OLDEST", "BLOCKED", "HELD BY", "RENEWALS", box=None)
    for each in body["partitions"][:ROWS_MAX]:
        figures = (each["start_offset"], each["end_offset"], each["available"], each["acquired"])
        oldest = (_or_dash(each["oldest_unsettled"]), _seconds(each["oldest_blocked_s"]))
        holder = (each["oldest_held_by"] or "-", _or_dash(each["oldest_renewals"]))
        _add(table, f"{each['topic']}-{each['partition']}", *map(str, figures), *oldest, *holder)
    return _more(table, len(body["partitions"]) + body["partitions_left_out"])


def _locks(body: Body) -> RenderableType:
    table = Table("PARTITION", "OFFSETS", "MEMBER", "DELIVERY", "HELD", "ENDS IN", "RENEWALS", box=None)
    for lock in body["locks"][:ROWS_MAX]:
        _add(
            table,
            f"{lock['topic']}-{lock['partition']}",
            f"{lock['first']}-{lock['last']}",
            lock["member"],
            str(lock["delivery_count"]),
            _seconds(lock["held_s"]),
            _seconds(lock["ends_in_s"]),
            str(lock["renewals"]),
        )
    return _more(table, len(body["locks"]) + body["locks_left_out"])


def _blocked_keys(body: Body) -> RenderableType:
    table = Table("PARTITION", "KEY HASH", "BEHIND OFFSET", "RECORDS WAITING", "BLOCKED", box=None)
    for each in body["blocked_keys"]:
        _add(
            table,
            f"{each['topic']}-{each['partition']}",
            each["key_hash"],
            str(each["behind_offset"]),
            str(each["waiting"]),
            _seconds(each.get("since_s")),
        )
    return table


def _delayed(body: Body) -> RenderableType:
    table = Table("PARTITION", "OFFSETS", "DELIVERY", "AVAILABLE IN", box=None)
    for each in body["delayed"][:ROWS_MAX]:
        offsets = f"{each['first']}-{each['last']}"
        _add(
            table,
            f"{each['topic']}-{each['partition']}",
            offsets,
            str(each["delivery_count"]),
            _seconds(each["due_in_s"]),
        )
    return _more(table, len(body["delayed"]) + body["delayed_left_out"])


def _add(table: Table, *cells: str) -> None:
    """Add a row. Client-supplied text is not interpreted as markup or control characters."""
    table.add_row(*map(cell, cells))


def _more(table: Table, count: int) -> RenderableType:
    left_out = count - table.row_count
    return Group(table, f"... and {left_out} more") if left_out > 0 else table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
