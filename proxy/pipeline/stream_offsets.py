"""How far a stream is: offsets by partition, as Spark keeps them in a checkpoint (pipeline/README.md rules 16, 17).

`{"v": 1, "t": {"orders": {"0": 123}}}`: no key range stands in it, so ranges and plans may change between any two runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from proxy.offsets.ranges import OffsetSpan
from proxy.wire.errors import ProxyError
from proxy.wire.values import TopicPartition

VERSION = 1


class BadStreamOffset(ProxyError):
    """What stands in the checkpoint was not written by this source, or by a newer one."""


def written(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """As Spark stores it."""
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    for place, offset in sorted(offsets.items()):
        topics[place.topic][str(place.partition)] = offset
    return {"v": VERSION, "t": dict(topics)}


def read_written(stored: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """What `written` made. Raises BadStreamOffset."""
    if stored.get("v") != VERSION:
        raise BadStreamOffset(f"the checkpoint holds offsets of version {stored.get('v')!r}, only {VERSION} is known")
    try:
        return {
            TopicPartition(str(topic), int(partition)): int(offset)
            for topic, partitions in stored["t"].items()
            for partition, offset in partitions.items()
        }
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise BadStreamOffset(f"the checkpoint holds no offsets of this source: {error!r}") from None


def admitted(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int | None
) -> dict[TopicPartition, int]:
    """Where the next batch ends: at most `most` offsets in all, shared in proportion to what each partition has.

    A partition that has something gets at least one offset while there are any, so none waits for ever. Nothing goes
    back: a latest offset below the start leaves the start.
    """
    lags = {place: max(0, end - start.get(place, end)) for place, end in latest.items()}
    total = sum(lags.values())
    base = {place: start.get(place, end) for place, end in latest.items()}
    if most is None or total <= most:
        return {place: base[place] + lag for place, lag in lags.items()}
    shares = {place: lag * most // total for place, lag in lags.items()}
    left = most - sum(shares.values())
    for place in sorted(lags, key=lambda each: (shares[each], -lags[each])):
        if left and shares[place] < lags[place]:
            shares[place] += 1
            left -= 1
    return {place: base[place] + shares[place] for place in lags}


def between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], first: Mapping[TopicPartition, int]
) -> list[tuple[TopicPartition, OffsetSpan]]:
    """The offsets of one batch; a partition that is new begins at the first offset there is."""
    found = []
    for place, stop in end.items():
        begin = start.get(place, first.get(place, stop))
        if begin < stop:
            found.append((place, OffsetSpan(begin, stop)))
    return found
