"""Reports on all share groups, all steps together."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.sharegroups import group_report

from tests.support.ports import World
from tests.support.steps import result_of


def all_groups(world: World) -> dict[str, Any]:
    return result_of(group_report.groups(world.services))
