"""Command `trace`: print the decoded requests and responses of one client of a running proxy."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import inf
from typing import Any
from urllib.parse import quote

from kafka_share_proxy.app.commands.groups_command import NoResponse, fetch
from kafka_share_proxy.app.commands.terminal import printable
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.wire.values import Address

POLL_EVERY_S = 0.3
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
HEAD = ("at", "worker", "connection", "client", "request", "response", "version", "correlation_id", "bytes", "ms")


def seconds_of(text: str) -> float:
    """Return the seconds of a duration: 30, 30s, 5m, 1h. Raises ConfigError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    with suppress(ValueError):
        seconds = float(number) * UNITS[unit]
        if 0 < seconds < inf:
            return seconds
    raise ConfigError(f"--for {text}: write a time like 30s, 5m or 1h")


def run(admin: Address, client: str | None, duration: str | None, *, as_json: bool) -> None:
    """Begin a trace, and print it until it ends. Without a client, print the one that the proxy has.

    Raises NoResponse, and ConfigError for a wrong duration.
    """
    if duration is not None and client is None:
        raise ConfigError("--for needs the CLIENT as well")
    parts = [] if duration is None else [f"{seconds_of(duration):g}"]
    try:
        if client is not None:
            fetch(admin, "/".join(("/trace/begin", quote(client, safe=""), *parts)), "POST")
        for line in lines(admin):
            print(line if as_json else readable(json.loads(line)), flush=True)  # noqa: T201
    except (KeyboardInterrupt, BrokenPipeError):
        if client is not None:
            with suppress(NoResponse):
                fetch(admin, "/trace/end", "POST")


def lines(admin: Address) -> Iterator[str]:
    """Yield the lines of the trace as JSON objects, and last a line about its end. Raises NoResponse."""
    body = fetch(admin, "/trace")
    if not body["client"]:
        raise NoResponse("no client is traced; name one: its client id or its address")
    while True:
        yield from body["lines"]
        if not body["on"] and not body["lines"]:
            left_out = body["connections_left_out"]
            yield json.dumps({"ended": body["ended"]} | ({"connections_left_out": left_out} if left_out else {}))
            return
        if not body["lines"]:
            time.sleep(POLL_EVERY_S)
        body = fetch(admin, f"/trace/after/{body['position']}")


def readable(line: Mapping[str, Any]) -> str:
    """Return a line for people."""
    if "ended" in line:
        left_out = line.get("connections_left_out", 0)
        return f"the trace has ended: {line['ended']}" + (f"; {left_out} more connections" if left_out else "")
    seconds, fraction = divmod(line["at"], 1)
    at = time.strftime("%H:%M:%S", time.localtime(seconds)) + f"{fraction:.3f}"[1:]
    where = f"worker {line['worker']} " if "worker" in line else ""
    message = f"> {line['request']}" if "request" in line else f"< {line['response']}"
    version = f" v{line['version']}" if "version" in line else ""
    duration = f" after {line['ms']:g} ms" if "ms" in line else ""
    known = {name: value for name, value in line.items() if name not in HEAD}
    text = f"{at} {where}{line['client']} #{line['connection']} {message}{version}"
    return printable(f"{text} ({line.get('correlation_id', '-')}), {line['bytes']} bytes{duration} {json.dumps(known)}")
