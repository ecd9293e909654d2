"""Creation of a share group: its id must be free, and its existence stored."""

from __future__ import annotations

from typing import NamedTuple

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S, JournalRefused
from kafka_share_proxy.loop.waiting import settled_within
from kafka_share_proxy.sharegroups.group_id_types import NATIVE, taken_by
from kafka_share_proxy.sharegroups.model.group import ShareGroup
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_writes import client_code
from kafka_share_proxy.wire.errors import ErrorCode


class GroupRefused(NamedTuple):
    """Reason why a group cannot be held here."""

    code: ErrorCode
    message: str


async def hold_group(connection: Connection, services: ShareServices, group_id: str) -> ShareGroup | GroupRefused:
    """Hold a new group, once its id is known to be free and its existence is stored."""
    holder = await taken_by(connection, services, group_id)
    if holder is not None:
        services.notes("share-group-id-taken", group_id=group_id, holder=holder)
        if holder == NATIVE and services.fleet is not None:
            # Other proxies may have noticed the brokers' share groups before this one. 69 ends Java clients.
            return GroupRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"Group {group_id} is {holder}.")
        return GroupRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group: it is {holder}.")
    try:
        stored = services.changes.hold_group(group_id)
        if not await settled_within(services.timers, RESPONSE_MAX_S, stored):
            return GroupRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The share group is not stored yet.")
        stored.result()
    except JournalRefused as refusal:
        return GroupRefused(client_code(refusal.code), str(refusal))
    return services.coordinator.add_group(group_id)
