"""Offsets of a stream by partition, in the form that Spark stores in a checkpoint (pipeline/README.md rules 16, 17).

Example: `{"v": 2, "t": {"orders": {"0": 123}}, "ids": {"orders": "4L6g..."}}`. It contains no key range, so ranges and
plans may change between any two runs. The ids distinguish a topic from another one of the same name. Earlier releases
wrote version 1, which has no ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.topic_ids import parse_topic_id, topic_id_text
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

VERSION = 2
WITHOUT_IDS = 1


class BadStreamOffset(ProxyError):
    """The content of the checkpoint was not written by this source, or was written by a newer release."""


def encode_offsets(offsets: Mapping[TopicPartition, int], ids: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the offset as Spark stores it. `ids`: of brokers that have them (Kafka 2.8 and later)."""
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    for partition, offset in sorted(offsets.items()):
        topics[partition.topic][str(partition.partition)] = offset
    texts = {topic: topic_id_text(ids[topic]) for topic in topics if ids.get(topic, ZERO_UUID) != ZERO_UUID}
    return {"v": VERSION, "t": dict(topics), "ids": texts}


def read_ids(stored: Mapping[str, Any]) -> dict[str, bytes]:
    """Return no ids for version 1. Raises BadStreamOffset."""
    if stored.get("v") == WITHOUT_IDS:
        return {}
    try:
        return {str(topic): parse_topic_id(text) for topic, text in stored["ids"].items()}
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise BadStreamOffset(f"the checkpoint holds no topic ids of this source: {error!r}") from None


def decode_offsets(stored: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the offsets that `written` stored. Raises BadStreamOffset."""
    if stored.get("v") not in (VERSION, WITHOUT_IDS):
        raise BadStreamOffset(
            f"the checkpoint holds offsets of version {stored.get('v')!r}, only {WITHOUT_IDS} and {VERSION} are known"
        )
    read_ids(stored)
    try:
        return {
            TopicPartition(str(topic), int(partition)): int(offset)
            for topic, partitions in stored["t"].items()
            for partition, offset in partitions.items()
        }
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise BadStreamOffset(f"the checkpoint holds no offsets of this source: {error!r}") from None


def limit_offsets(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], offsets_max: int | None
) -> dict[TopicPartition, int]:
    """Share `offsets_max` offsets in proportion to the lag of each partition.

    A partition with a lag gets at least one, so that none starves. No offset decreases.
    """
    lags = {partition: max(0, end - start.get(partition, end)) for partition, end in latest.items()}
    total = sum(lags.values())
    base = {partition: start.get(partition, end) for partition, end in latest.items()}
    if offsets_max is None or total <= offsets_max:
        return {partition: base[partition] + lag for partition, lag in lags.items()}
    shares = {partition: lag * offsets_max // total for partition, lag in lags.items()}
    remaining = offsets_max - sum(shares.values())
    for partition in sorted(lags, key=lambda each: (shares[each], -lags[each])):
        if remaining and shares[partition] < lags[partition]:
            shares[partition] += 1
            remaining -= 1
    return {partition: base[partition] + shares[partition] for partition in lags}


def continued(
    start: Mapping[TopicPartition, int],
    start_ids: Mapping[str, bytes],
    end: Mapping[TopicPartition, int],
    end_ids: Mapping[str, bytes],
) -> dict[TopicPartition, int]:
    """Return the offsets of `start` that belong to the topics of `end`.

    A topic with another id is another topic. A start without an id was stored by an earlier release: if the end is
    before it in any partition, the topic was created again in between.
    """
    other = {topic for topic, topic_id in start_ids.items() if end_ids.get(topic, topic_id) != topic_id}
    other |= {
        partition.topic
        for partition, offset in start.items()
        if partition.topic not in start_ids and end.get(partition, offset) < offset
    }
    return {partition: offset for partition, offset in start.items() if partition.topic not in other}


def between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], first: Mapping[TopicPartition, int]
) -> list[tuple[TopicPartition, OffsetSpan]]:
    """Return the offsets of one batch. A new partition begins at its first offset."""
    spans = []
    for partition, stop in end.items():
        begin = start.get(partition, first.get(partition, stop))
        if begin < stop:
            spans.append((partition, OffsetSpan(begin, stop)))
    return spans
