"""Holding a new share group: its id must be free, and its existence stored."""

from __future__ import annotations

from typing import NamedTuple

from proxy.apis.ports import Connection, JournalRefused
from proxy.apis.services import Services
from proxy.apis.share_ids import taken_by
from proxy.apis.share_writes import ANSWER_MAX_S, client_code
from proxy.apis.waiting import settled_within
from proxy.errors import ErrorCode
from proxy.share.group import ShareGroup


class GroupRefused(NamedTuple):
    """Why a group cannot be held here."""

    code: ErrorCode
    message: str


async def hold_group(connection: Connection, services: Services, group_id: str) -> ShareGroup | GroupRefused:
    """Hold a new group, once its id is known to be free and its existence is stored."""
    holder = await taken_by(connection, services, group_id)
    if holder is not None:
        services.notes("share-group-id-taken", group_id=group_id, holder=holder)
        return GroupRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group: it is {holder}.")
    try:
        stored = services.changes.hold_group(group_id)
        if not await settled_within(services.timers, ANSWER_MAX_S, stored):
            return GroupRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The share group is not stored yet.")
        stored.result()
    except JournalRefused as refusal:
        return GroupRefused(client_code(refusal.code), str(refusal))
    return services.coordinator.add_group(group_id)
