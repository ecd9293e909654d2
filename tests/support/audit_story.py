"""Audit events that proxies might have written, and the files they stand in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NOON = 1_795_262_400_000
"""2026-11-21 12:00 UTC, in milliseconds."""


class Proxy:
    """Writes events as a proxy does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []

    def event(self, kind: str, ts_ms: int, **fields: Any) -> None:
        common = {"v": 2, "proxy_id": self.name, "seq": len(self.lines) + 1, "ts_ms": ts_ms, "kind": kind}
        place = {"cluster": "c", "topic": "orders", "partition": 0, "group": "g", "member": None}
        self.lines.append(json.dumps(common | place | fields))

    def settle(self, ts_ms: int, first: int, last: int, **fields: Any) -> None:
        usual = {"attempt": 1, "t_acquire_ms": ts_ms - 100, "outcome": "accept", "renews": 0, "renew_ms": 0}
        self.event(
            "settle", ts_ms, **({"first": first, "last": last, "start_offset": None, "by": "proxy"} | usual | fields)
        )


def write(folder: Path, name: str, lines: list[str], end: str = "\n") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(lines) + end)


def blocked_events() -> list[str]:
    """Return events of a group.

    10 is settled at +1 s; 11 was renewed by `slow` and settled at +9 s, when 12-19 were done already.
    """
    proxy = Proxy("one")
    proxy.settle(NOON + 1_000, 10, 10, start_offset=10, member="quick")
    proxy.settle(NOON + 5_000, 12, 19, start_offset=11, member="quick")
    proxy.settle(NOON + 9_000, 11, 11, start_offset=11, member="slow", renews=3, renew_ms=60_000)
    still = {"attempt": 1, "t_acquire_ms": NOON, "renews": 4, "start_offset": 20, "member": "stuck"}
    proxy.event("renew", NOON + 10_000, first=20, last=20, renew_ms=400, **still)
    proxy.event("renew", NOON + 12_000, first=20, last=20, renew_ms=2_400, **still)
    proxy.event("member", NOON + 12_000, member="slow", client="billing", host="10.0.0.7")
    return proxy.lines


def load_events() -> list[str]:
    """Return load events of two proxies: one owns the group and knows the totals, the other one saw the keys."""
    owner, edge = Proxy("owner"), Proxy("edge")
    nothing = {"sampled": 0, "sampled_bytes": 0, "buckets": {}, "interval_ms": 60_000, "group": None}
    owner.event("load", NOON, rows=1_000, bytes=50_000, hold_ms=9_000, **nothing)
    sample = {"sampled": 4, "sampled_bytes": 100, "buckets": {"7": [3, 20], "4095": [1, 80]}}
    edge.event("load", NOON + 1, rows=0, bytes=0, hold_ms=0, **(nothing | sample))
    owner.event("load", NOON + 60_000, rows=5, bytes=50, hold_ms=0, **nothing)
    hot = {"interval_ms": 60_000, "null_keys": 0, "error": 1, "group": None}
    owner.event("hot_keys", NOON, sampled=100, keys=[[123, 60], [9, 10]], **hot)
    edge.event("hot_keys", NOON, sampled=100, keys=[[123, 30]], **hot)
    return owner.lines + edge.lines


def view_events() -> list[str]:
    """Return events of a view of two base partitions, of which the first has three quarters of the records.

    Two members with the assignor range read it.
    """
    proxy = Proxy("views")
    view = {"view": "__view.r2.orders"}
    for number, members in ((1, 2), (2, None)):
        offered = ["range", "roundrobin"] if number == 1 else ["range", "cooperative-sticky"]
        proxy.event(
            "view_member", NOON + number, partition=None, member=f"m{number}", client=f"app-{number}",
            group_protocol="classic", assignor="range", offered=offered, members=members, **view,
        )  # fmt: skip
        for slot, rows in ((0, 100), (1, 50)):
            read = {
                "reader": "view",
                "slot": slot,
                "client": f"app-{number}",
                "rows_out": rows // number,
                "group": None,
            }
            proxy.event("fetch", NOON + 1_000, **(read | view | {"partition": number - 1}))
    proxy.event(
        "view_member", NOON + 5, partition=None, group="modern", member="m3", client="app-1",
        group_protocol="consumer", assignor=None, offered=[], members=None, **view,
    )  # fmt: skip
    return proxy.lines


def queue_events() -> list[str]:
    """Return events of a queue that was handed over and taken back.

    30 waited 2 s and then 4 s, 31 to 33 were rejected, 40 reached the limit, and 9 records waited for 50.
    """
    proxy = Proxy("queue")
    group = {"group": "jobs"}
    for attempt, delay_ms in ((1, 2_000), (2, 4_000)):
        waits = {"first": 30, "last": 30, "attempt": attempt, "due_ms": NOON + delay_ms}
        proxy.event("delayed", NOON, **(group | waits))
    letters = {"attempt": 1, "dead_letter_topic": "dlq.jobs"}
    proxy.event("dead_letter", NOON, first=31, last=33, outcome="reject", **(group | letters))
    proxy.event("dead_letter", NOON, first=40, last=40, outcome="delivery_limit", **(group | letters))
    for waiting, blocked_ms, key_hash in ((9, 60_000, "00000000000000aa"), (2, None, "00000000000000bb")):
        values = {"key_hash": key_hash, "behind": 50, "waiting": waiting, "blocked_ms": blocked_ms}
        proxy.event("blocked", NOON, **(group | values))
    moved = {"topic": None, "partition": None, "partitions": 1, "held_back_ms": 80, "records": 0}
    proxy.event("handed_over", NOON + 9, **(group | moved))
    proxy.event("taken_back", NOON + 12, **(group | moved | {"held_back_ms": 120}))
    return proxy.lines
