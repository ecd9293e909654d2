"""Reports on all share groups, all steps together."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.sharegroups import group_report

from tests.support.ports import World


def all_groups(world: World) -> dict[str, Any]:
    steps = group_report.groups(world.services)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            told: dict[str, Any] = end.value
            return told
