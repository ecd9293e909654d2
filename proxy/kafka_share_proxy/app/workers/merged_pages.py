"""JSON pages of all workers as those of one proxy (app/README.md rule 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_share_proxy.app.observing.status_html import HEAD, TAIL
from kafka_share_proxy.forwarding.connection_list import LISTED_MAX, lines_waiting_longest

Body = Mapping[str, Any]
DETAILS = '<details id="'
SUMMED = "state_partitions"
"""Detail of a probe that is the sum of all workers."""


def connections(bodies: Mapping[int, Body]) -> dict[str, Any]:
    """Merge lists of connections, in the order and with the limit of each. Each line gets the number of its worker."""
    listed = [line | {"worker": number} for number, body in bodies.items() for line in body["connections"]]
    shown = lines_waiting_longest(listed, LISTED_MAX)
    left_out = sum(body["left_out"] for body in bodies.values()) + len(listed) - len(shown)
    return {"connections": shown, "left_out": left_out}


def groups(bodies: Mapping[int, Body]) -> dict[str, Any]:
    """Merge lists of share groups. A group that a sibling holds is not held elsewhere."""
    lines = [line | {"worker": number} for number, body in bodies.items() for line in body["groups"]]
    here = {line["group"] for line in lines}
    elsewhere = {group for body in bodies.values() for group in body.get("elsewhere", ())}
    reasons = [body["reason"] for body in bodies.values() if "reason" in body]
    merged = {
        "groups": sorted(lines, key=lambda line: str(line["group"])),
        "resting_partitions": sum(body["resting_partitions"] for body in bodies.values()),
        "elsewhere": sorted(elsewhere - here),
        "complete": all(body["complete"] for body in bodies.values()),
    }
    return merged | ({"reason": reasons[0]} if reasons else {})


def readiness(probes: Mapping[int, tuple[bool, Body]]) -> tuple[bool, dict[str, Any]]:
    """Return True if a worker is ready, and details: those of a ready worker, else of the first.

    `state_partitions` is the number that all workers own.
    """
    ready = [body for is_ready, body in probes.values() if is_ready]
    first = next(iter(ready), next((body for _, body in probes.values()), {"reasons": ["no worker runs"]}))
    workers = {str(number): is_ready for number, (is_ready, _) in probes.items()}
    summed = {SUMMED: sum(body.get(SUMMED, 0) for _, body in probes.values())} if SUMMED in first else {}
    return bool(ready), {**first, **summed, "ready": bool(ready), "workers": workers}


def status(pages: Sequence[tuple[int, str]]) -> str:
    """Return one status page with the sections of all workers, whose ids are made different."""
    parts = [HEAD]
    for number, page in pages:
        sections = page.removeprefix(HEAD).removesuffix(TAIL).replace(DETAILS, f"{DETAILS}w{number}-")
        parts.append(f"<h2>Worker {number}</h2>\n{sections}")
    return "".join((*parts, TAIL))
