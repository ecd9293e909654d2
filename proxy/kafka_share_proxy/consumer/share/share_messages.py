"""ShareFetch and ShareAcknowledge as messages (consumer/share_consumers.md rules 3-6)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_share_proxy.consumer.requests import RequestManager, UnsentRequest
from kafka_share_proxy.consumer.share.share_acknowledgements import (
    NamedDelays,
    TypesByOffset,
    delayed_spans,
    spans,
)
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
from kafka_share_proxy.consumer.share.share_session import Acknowledgements, ShareSession, has_renewals
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.redelivery_delay import tags_of
from kafka_share_proxy.wire.values import TopicPartition

VERSIONS = (1, 2)
RENEWING = RECORD_LIMIT = (2, 2)
"""KIP-1222 and KIP-1206 require version 2."""
RECORD_LIMIT_MODE = 1
"""Limit on records instead of whole batches (ShareAcquireMode)."""


class ShareMessages:
    """Builder of the requests of one member."""

    def __init__(self, options: ShareConsumerOptions, member_id: str) -> None:
        self._options = options
        self._member_id = member_id

    def fetch(
        self,
        session: ShareSession,
        readable: dict[TopicPartition, bytes],
        acks: Acknowledgements,
        wait_s: float,
        delays: NamedDelays | None = None,
    ) -> Any:
        """Build a ShareFetch. Without partitions to read it requests no records and does not wait."""
        message = messages.ShareFetchRequest
        added, forgotten = session.changes(readable)
        topic_ids = added | {each: session.ids[each] for each in acks}
        forgotten |= {each: session.ids[each] for each in acks if each not in readable}
        options = self._options
        request = message(
            group_id=options.group,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_bytes=0,
            topics=[
                message.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        message.FetchPartition(
                            partition_index=each.partition,
                            acknowledgement_batches=_batches(message, acks.get(each, {}), delays, each),
                        )
                        for each in listed
                    ],
                )
                for topic_id, listed in _by_id(topic_ids)
            ],
            forgotten_topics_data=[
                message.ForgottenTopic(topic_id=topic_id, partitions=[each.partition for each in listed])
                for topic_id, listed in _by_id(forgotten)
            ],
        )
        if options.limits_records:
            request.share_acquire_mode = RECORD_LIMIT_MODE
        if readable:
            # Rounded up: with 0 ms a fetch would be repeated without a pause until a renewal is due.
            request.max_wait_ms, request.min_bytes = math.ceil(wait_s * 1000), options.fetch_min_bytes
            request.max_bytes = options.fetch_max_bytes
            request.max_records = request.batch_size = options.max_poll_records
        return request

    def acknowledge(
        self, session: ShareSession, acks: Acknowledgements, epoch: int, delays: NamedDelays | None = None
    ) -> Any:
        message = messages.ShareAcknowledgeRequest
        return message(
            group_id=self._options.group,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=has_renewals(acks),
            topics=[
                message.AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        message.AcknowledgePartition(
                            partition_index=each.partition,
                            acknowledgement_batches=_batches(message, acks[each], delays, each),
                        )
                        for each in listed
                    ],
                )
                for topic_id, listed in _by_id({each: session.ids[each] for each in acks})
            ],
        )

    def unsent(
        self, sender: RequestManager, api: str, message: Any, session: ShareSession, context: Any
    ) -> UnsentRequest:
        versions = VERSIONS
        if api == "ShareFetch" and self._options.limits_records:
            versions = RECORD_LIMIT
        elif api == "ShareAcknowledge" and message.is_renew_ack:
            versions = RENEWING
        return UnsentRequest(
            sender=sender,
            api=api,
            message=message,
            versions=versions,
            timeout_s=self._options.request_timeout_s,
            node_id=session.node_id,
            context=context,
        )


def _batches(message: Any, acks: TypesByOffset, delays: NamedDelays | None, partition: TopicPartition) -> list[Any]:
    partition_delays = delays.get(partition) if delays else None
    if not partition_delays:
        return [
            message.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in spans(acks)
        ]
    return [
        message.AcknowledgementBatch(
            first_offset=first,
            last_offset=last,
            acknowledge_types=types,
            unknown_tags=() if delay_ms is None else tags_of(delay_ms),
        )
        for (first, last, types), delay_ms in delayed_spans(acks, partition_delays)
    ]


def _by_id(partitions: Mapping[TopicPartition, bytes]) -> Iterable[tuple[bytes, list[TopicPartition]]]:
    grouped: dict[bytes, list[TopicPartition]] = {}
    for each in sorted(partitions):
        grouped.setdefault(partitions[each], []).append(each)
    return grouped.items()
