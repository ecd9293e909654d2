"""OffsetFetch (key 9): the broker's committed offsets, with the finished ranges above them.

Rules: commits/README.md 14 to 16, 18 and 19. Versions: all that brokers have: one group or several, named topics, ids
(v10), or all topics. The handler receives only requests about groups that are known to have ranges. While a transaction
is open, the broker's own 88 is passed on if the client wants stable offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from kafka_share_proxy.commits.apis import fetched_groups
from kafka_share_proxy.commits.apis.fetched_groups import RequestedGroup, requested_groups, responded_groups
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.locked_partitions import load_committed, text_of, with_locks
from kafka_share_proxy.commits.model.partition_commits import PartitionCommits
from kafka_share_proxy.commits.requested_commits import NUL, final_nul, load_topics, name_and_id
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import StoredChange, store
from kafka_share_proxy.commits.topic_ids import current_topic_ids
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream
from kafka_share_proxy.offsets.commit_text import PREFIX, CommitText
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

KEY = ApiKey.OFFSET_FETCH
TEXT_BYTES_MAX = 32_766
"""Longest string in Kafka's protocol, less one byte for a NUL."""

NOTHING_HELD = PartitionCommits()

_Entry: TypeAlias = (
    "messages.OffsetFetchResponse.OffsetFetchResponsePartition"
    " | messages.OffsetFetchResponse.OffsetFetchResponsePartitions"
)


async def handle(call: Call[messages.OffsetFetchRequest], services: CommitServices) -> messages.OffsetFetchResponse:
    response: messages.OffsetFetchResponse | None = None
    for group in requested_groups(call.message, call.version):
        fetch = _OffsetFetch(call, services, group)
        part = await fetch.run()
        services.held.let_go(group.group_id)
        response = part if response is None else _joined(response, part)
    if response is None:
        return await send_upstream(call, call.message)
    return response


def _joined(response: messages.OffsetFetchResponse, part: messages.OffsetFetchResponse) -> messages.OffsetFetchResponse:
    response.groups = [*response.groups, *part.groups]
    return response


class _OffsetFetch:
    def __init__(
        self, call: Call[messages.OffsetFetchRequest], services: CommitServices, group: RequestedGroup
    ) -> None:
        self._services = services
        self._group_id = group.group_id
        self._topics = group.topics
        is_list = call.version >= fetched_groups.GROUPS_VERSION
        self._call = fetched_groups.SPLITS.about(call, [group]) if is_list else call

    async def run(self) -> messages.OffsetFetchResponse:
        await load_topics(self._call, self._services, self._topics or ())
        partitions = self._held_partitions()
        if not partitions:
            return await self._shown()
        group = self._services.held.group(self._group_id)
        await self._drop_ranges_of_deleted_topics(group, partitions)
        doubtful = {partition for partition in partitions if not group.state_of(partition).is_committed_known}

        def needs_exclusive(_partition: TopicPartition) -> bool:
            return bool(doubtful)

        async def read_committed() -> messages.OffsetFetchResponse | None:
            if doubtful:
                await self._request_committed(partitions)
                return await self._shown()
            response = await send_upstream(self._call, self._call.message)
            doubtful.update(self._differing(response))
            return None if doubtful else await self._shown(response)

        for _ in range(2):
            response = await with_locks(self._services, self._group_id, partitions, needs_exclusive, read_committed)
            if response is not None:
                return response
        raise AssertionError("unknown committed offsets are requested")

    async def _drop_ranges_of_deleted_topics(self, group: CommittingGroup, partitions: set[TopicPartition]) -> None:
        """See commits/README.md rule 16. Raises UpstreamLost."""
        names = {
            partition.topic
            for partition in partitions
            if group.state_of(partition).ranges or group.state_of(partition).has_text
        }
        ids = await current_topic_ids(self._call, self._services, names)
        requested_topics = [
            (partition, group.state_of(partition), ids[partition.topic])
            for partition in partitions
            if partition.topic in ids
        ]
        store(
            self._services,
            group,
            [
                StoredChange(partition, state, state.topic_is(topic_id))
                for partition, state, topic_id in requested_topics
            ],
        )

    async def _request_committed(self, partitions: set[TopicPartition]) -> None:
        group = self._services.held.group(self._group_id)
        for partition in partitions:
            group.state_of(partition).forget_committed()
        await load_committed(self._services, self._call.connection, group, partitions)

    def _held_partitions(self) -> set[TopicPartition]:
        held_partitions = self._services.held.group(self._group_id).partitions
        if self._topics is None:
            return set(held_partitions)
        requested = {
            TopicPartition(name, index)
            for topic in self._topics
            if (name := name_and_id(topic, self._services)[0]) is not None
            for index in topic.partition_indexes
        }
        return requested & held_partitions.keys()

    def _entries(self, response: messages.OffsetFetchResponse) -> Iterator[tuple[TopicPartition | None, _Entry]]:
        for _, group in responded_groups(self._call.message, response, self._call.version):
            if group.error_code != ErrorCode.NONE:
                continue
            for topic in group.topics or ():
                name = name_and_id(topic, self._services)[0]
                for entry in topic.partitions or ():
                    if entry.error_code == ErrorCode.NONE:
                        yield None if name is None else TopicPartition(name, entry.partition_index), entry

    def _differing(self, response: messages.OffsetFetchResponse) -> set[TopicPartition]:
        held_partitions = self._services.held.group(self._group_id).partitions
        return {
            partition
            for partition, entry in self._entries(response)
            if partition is not None
            and partition in held_partitions
            and held_partitions[partition].committed != entry.committed_offset
        }

    async def _shown(self, response: messages.OffsetFetchResponse | None = None) -> messages.OffsetFetchResponse:
        if response is None:
            response = await send_upstream(self._call, self._call.message)
        held_partitions = self._services.held.group(self._group_id).partitions
        if self._call.version >= 10:
            topics = (
                topic for _, group in responded_groups(self._call.message, response, 10) for topic in group.topics
            )
            await load_topics(self._call, self._services, topics)
        for partition, entry in self._entries(response):
            commits = NOTHING_HELD if partition is None else held_partitions.get(partition, NOTHING_HELD)
            self._amend(partition, commits, entry)
            await self._call.work.step()
        return response

    def _amend(self, partition: TopicPartition | None, commits: PartitionCommits, entry: _Entry) -> None:
        text = text_of(entry.metadata)
        if text is None and not commits.ranges:
            return
        offset, ranges = commits.shown(entry.committed_offset, () if text is None else text.ranges)
        if offset != entry.committed_offset:
            entry.committed_offset, entry.committed_leader_epoch = offset, -1
        nul, own = final_nul(entry.metadata), (entry.metadata or "").rstrip(NUL) or None
        catch_up, user_text = ((), own) if text is None else (text.catch_up, text.user_text)
        if ranges or catch_up:
            entry.metadata = self._text(partition, CommitText(ranges, catch_up, user_text)) + nul
        else:
            entry.metadata = (user_text or "") + nul

    def _text(self, partition: TopicPartition | None, text: CommitText) -> str:
        written = str(text)
        if len(written) <= TEXT_BYTES_MAX and (written.isascii() or len(written.encode()) <= TEXT_BYTES_MAX):
            return written
        text_without_ranges = f"{CommitText(OffsetRanges(), text.catch_up, text.user_text)}"
        room = TEXT_BYTES_MAX - len(text_without_ranges.encode())
        end = str(text.ranges).rfind(",", 0, max(room, 0) + 1)
        shown = str(text.ranges)[: max(end, 0)]
        left_out = len(text.ranges) - (shown.count(",") + 1 if shown else 0)
        self._services.base.notes("ranges-not-shown", group=self._group_id, place=str(partition), ranges=left_out)
        return PREFIX + shown + text_without_ranges[len(PREFIX) :]


async def _respond_unavailable(
    call: Call[messages.OffsetFetchRequest], code: ErrorCode, _reason: str
) -> messages.OffsetFetchResponse:
    return fetched_groups.refused(call.message, call.version, code)


API = DeclaredApi(
    key=KEY,
    handle=handle,
    needs=Needs.OWNER,
    respond_unavailable=_respond_unavailable,
    splits=fetched_groups.SPLITS,
    is_repeated=True,
)
