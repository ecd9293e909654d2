"""Share consumers by hand: heartbeats, share sessions with their epochs, acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.conformance.suite.building import KEYS
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cluster_under_test import COORDINATOR_NOT_READY, CaseTopic, SetUpFailed
from kafka_share_proxy.conformance.suite.connection import PeerConnection
from kafka_share_proxy.conformance.suite.expectations import Mismatch, equal
from kafka_share_proxy.wire.errors import ErrorCode, error_name

SHARE = ("share",)
"""Needs of every case of share groups."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgements (KIP-932, KIP-1222)."""
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
FINAL_EPOCH = -1
LAST_EPOCH = 0x7FFFFFFF
NOT_YET = COORDINATOR_NOT_READY | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors of a coordinator that does not know a new topic yet, or is not ready."""
WAIT_MS = 500
TAKE_FETCHES = 60
"""Fetches of WAIT_MS each, within which records must be acquired."""
MAX_BYTES = 1 << 20

Ack = tuple[CaseTopic, int, int, int, int | Sequence[int]]
"""Topic, partition, first offset, last offset, one type or several."""
Place = tuple[CaseTopic, int]
Spans = list[tuple[int, int, int]]
"""First offset, last offset, delivery count."""


@dataclass
class ShareSessionMember:
    """One member id of one group, with a share session on one connection."""

    run: CaseRun
    group: str
    connection: PeerConnection
    member_id: str
    epoch: int = 0
    """Next session epoch."""
    member_epoch: int = 0
    assigned: dict[bytes, list[int]] = field(default_factory=dict)

    async def heartbeat(self, epoch: int | None = None, topics: Sequence[str] | None = None, **fields: Any) -> Any:
        """Send a ShareGroupHeartbeat and keep what an accepted one returns."""
        coordinator = await self.run.coordinator(self.group)
        sent_epoch = self.member_epoch if epoch is None else epoch
        values: dict[str, Any] = {"group_id": self.group, "member_id": self.member_id, "member_epoch": sent_epoch}
        values |= {"rack_id": None, "subscribed_topic_names": None if topics is None else list(topics)} | fields
        response = await self.run.request("ShareGroupHeartbeat", coordinator, **values)
        if response.error_code == 0:
            self.member_epoch = response.member_epoch
            if response.assignment is not None:
                topic_partitions = response.assignment.topic_partitions
                self.assigned = {bytes(each.topic_id): sorted(each.partitions) for each in topic_partitions}
        return response

    async def join(self, *topics: CaseTopic) -> None:
        """Join and heartbeat until all partitions of the topics are assigned. Raises SetUpFailed, Mismatch."""
        self.run.at_end(self.leave)
        response = await self.heartbeat(0, [topic.name for topic in topics])
        if response.error_code:
            raise SetUpFailed(f"cannot join: {error_name(response.error_code)} {response.error_message or ''}")

        async def complete() -> bool:
            if not all(self.assigned.get(topic.topic_id) == topic.partitions for topic in topics):
                await self.heartbeat()
            return all(self.assigned.get(topic.topic_id) == topic.partitions for topic in topics)

        await self.run.until(complete, "the assignment of all partitions")

    async def leave(self) -> None:
        """Leave the group if it is joined."""
        if self.member_epoch > 0:
            await self.heartbeat(-1)

    async def fetch(
        self,
        *places: CaseTopic | Place,
        acks: Sequence[Ack] = (),
        epoch: int | None = None,
        wait_ms: int | None = None,
        version: int | None = None,
        renew: bool = False,
        mode: int = BATCH_OPTIMIZED,
        forget: Sequence[Place] = (),
        on: PeerConnection | None = None,
        **fields: Any,
    ) -> Any:
        """Send a ShareFetch. A renewing one requests no records, unless `fields` say so."""
        amount = 0 if renew else 1
        values: dict[str, Any] = {
            "max_wait_ms": (0 if renew else WAIT_MS) if wait_ms is None else wait_ms,
            "min_bytes": amount,
            "max_bytes": amount * MAX_BYTES,
            "max_records": amount * 500,
            "batch_size": amount * 500,
            "forgotten_topics_data": _forgotten(forget),
        }
        chosen = self._version("ShareFetch", version, renew or mode != BATCH_OPTIMIZED)
        if chosen >= 2:
            values |= {"share_acquire_mode": mode, "is_renew_ack": renew}
        return await self._send("ShareFetch", chosen, places, acks, epoch, on, values | fields)

    async def acknowledge(
        self,
        *acks: Ack,
        epoch: int | None = None,
        version: int | None = None,
        renew: bool = False,
        on: PeerConnection | None = None,
        **fields: Any,
    ) -> Any:
        """Send a ShareAcknowledge."""
        chosen = self._version("ShareAcknowledge", version, renew)
        values = {"is_renew_ack": renew} if chosen >= 2 else {}
        return await self._send("ShareAcknowledge", chosen, (), acks, epoch, on, values | fields)

    async def acknowledge_code(self, *acks: Ack, **options: Any) -> int:
        """Send a ShareAcknowledge; return the error code of the first partition in it."""
        topic, partition, *_ = acks[0]
        return int(entry(await self.acknowledge(*acks, **options), topic, partition).error_code)

    def _version(self, api: str, version: int | None, needs_second: bool) -> int:
        return self.run.cluster.version(api, version) if not needs_second else 2

    async def _send(
        self,
        api: str,
        version: int,
        places: Sequence[CaseTopic | Place],
        acks: Sequence[Ack],
        epoch: int | None,
        on: PeerConnection | None,
        values: Mapping[str, Any],
    ) -> Any:
        sent_epoch = self.epoch if epoch is None else epoch
        fields = {"group_id": self.group, "member_id": self.member_id, "share_session_epoch": sent_epoch} | {
            "topics": _topics(places, acks)
        }
        response = await (on or self.connection).request(api, version, **(fields | dict(values)))
        if response.error_code == 0 and on is None:
            self.epoch = 0 if sent_epoch == FINAL_EPOCH else 1 if sent_epoch == LAST_EPOCH else sent_epoch + 1
        return response

    async def take(self, *places: CaseTopic | Place, **options: Any) -> Any:
        """Fetch until records are acquired and return that response. Raises Mismatch."""
        return await self.fetch_until(lambda response: bool(all_acquired(response)), *places, **options)

    async def fetch_until(self, is_enough: Callable[[Any], bool], *places: CaseTopic | Place, **options: Any) -> Any:
        """Repeat a fetch until a response is enough. Raises Mismatch after TAKE_FETCHES."""
        for _ in range(TAKE_FETCHES):
            response = await self.fetch(*places, **options)
            equal("error of the ShareFetch", response.error_code, ErrorCode.NONE)
            if is_enough(response):
                return response
            places = ()
            for name in ("epoch", "acks"):
                options.pop(name, None)
        raise Mismatch("records", f"within {TAKE_FETCHES} fetches", "none")

    async def acquire(self, topic: CaseTopic, partition: int = 0, **options: Any) -> Spans:
        """Fetch until records are acquired; return what was acquired of the partition."""
        return acquired(await self.take((topic, partition), **options), topic, partition)


async def share_member(
    run: CaseRun, group: str, topic: CaseTopic, *, partition: int = 0, shared: bool = False
) -> ShareSessionMember:
    """Return a member that has not joined, with a separate connection to the leader of a partition."""
    address = await run.node(topic.leaders[partition])
    connection = await (run.connection(address) if shared else run.connect(address))
    return ShareSessionMember(run, group, connection, run.name("m")[-36:])


async def share_group(
    run: CaseRun, *topics: CaseTopic, settings: Mapping[str, str] | None = None, start: int = 0
) -> str:
    """Return a group whose share partitions begin at an offset, without members.

    AlterShareGroupOffsets initialises them immediately; where it is not offered, a member joins and leaves.
    """
    group = run.group()
    connection = await run.connection()
    if KEYS["AlterShareGroupOffsets"] not in run.cluster.versions:
        await run.cluster.configure_group(
            connection, group, {"share.auto.offset.reset": "earliest"} | dict(settings or {})
        )
        member = await share_member(run, group, topics[0], shared=True)
        await member.join(*topics)
        return group
    if settings:
        await run.cluster.configure_group(connection, group, settings)
    await alter_offsets(run, group, *topics, start=start)
    return group


async def alter_offsets(run: CaseRun, group: str, *topics: CaseTopic, start: int = 0) -> None:
    """Set the start offset of all partitions of the topics. Raises SetUpFailed."""
    listed = [
        {
            "topic_name": topic.name,
            "partitions": [{"partition_index": partition, "start_offset": start} for partition in topic.partitions],
        }
        for topic in topics
    ]

    async def altered() -> Any:
        response = await run.request(
            "AlterShareGroupOffsets", await run.coordinator(group), group_id=group, topics=listed
        )
        return response if not _codes(response) or not _codes(response) <= NOT_YET else None

    codes = _codes(await run.until(altered, "AlterShareGroupOffsets"))
    if codes:
        raise SetUpFailed(f"cannot set start offsets: {', '.join(map(error_name, sorted(codes)))}")


def _codes(response: Any) -> set[int]:
    codes = {response.error_code, *(p.error_code for each in response.responses for p in each.partitions)}
    return codes - {ErrorCode.NONE}


async def described(run: CaseRun, group: str, topic: CaseTopic, partition: int = 0) -> Any:
    """Return the partition of a DescribeShareGroupOffsets response."""
    groups = [{"group_id": group, "topics": [{"topic_name": topic.name, "partitions": [partition]}]}]
    response = await run.request("DescribeShareGroupOffsets", await run.coordinator(group), groups=groups)
    equal("error of the group", response.groups[0].error_code, ErrorCode.NONE)
    return response.groups[0].topics[0].partitions[0]


def entry(response: Any, topic: CaseTopic, partition: int = 0) -> Any:
    """Return the partition of a response. Raises Mismatch if it is missing."""
    partition_entry = find_entry(response, topic, partition)
    if partition_entry is None:
        raise Mismatch("partition in the response", f"partition {partition}", "no such entry")
    return partition_entry


def find_entry(response: Any, topic: CaseTopic, partition: int = 0) -> Any:
    """Return the partition of a response; None if it is missing."""
    return next(
        (
            partition_entry
            for topic_entry in response.responses
            if bytes(topic_entry.topic_id) == topic.topic_id
            for partition_entry in topic_entry.partitions
            if partition_entry.partition_index == partition
        ),
        None,
    )


def acquired(response: Any, topic: CaseTopic, partition: int = 0) -> Spans:
    """Return what was acquired of one partition."""
    partition_entry = find_entry(response, topic, partition)
    return [] if partition_entry is None else _spans(partition_entry)


def all_acquired(response: Any) -> Spans:
    """Return what was acquired of all partitions."""
    return [
        span
        for topic_entry in response.responses
        for partition_entry in topic_entry.partitions
        for span in _spans(partition_entry)
    ]


def _spans(partition: Any) -> Spans:
    return [
        (acquired_range.first_offset, acquired_range.last_offset, acquired_range.delivery_count)
        for acquired_range in partition.acquired_records
    ]


def _topics(places: Sequence[CaseTopic | Place], acks: Sequence[Ack]) -> list[dict[str, Any]]:
    listed: dict[bytes, dict[int, list[dict[str, Any]]]] = {}
    for place in places:
        topic, partitions = (place, place.partitions) if isinstance(place, CaseTopic) else (place[0], [place[1]])
        for partition in partitions:
            listed.setdefault(topic.topic_id, {}).setdefault(partition, [])
    for topic, partition, first, last, types in acks:
        kinds = [types] if isinstance(types, int) else list(types)
        batch = {"first_offset": first, "last_offset": last, "acknowledge_types": kinds}
        listed.setdefault(topic.topic_id, {}).setdefault(partition, []).append(batch)
    return [
        {
            "topic_id": topic_id,
            "partitions": [
                {"partition_index": partition, "acknowledgement_batches": batches}
                for partition, batches in partitions.items()
            ],
        }
        for topic_id, partitions in listed.items()
    ]


def _forgotten(places: Sequence[Place]) -> list[dict[str, Any]]:
    return [{"topic_id": topic.topic_id, "partitions": [partition]} for topic, partition in places]
