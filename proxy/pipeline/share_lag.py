"""How many offsets a share group has before it (pipeline/README.md rule 49; KIP-1226)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from proxy.pipeline.cluster import ClusterClient, TryAgain, checked
from proxy.pipeline.share_options import ShareSourceOptions
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ProxyError

VERSION = 1
"""The first that tells the lag."""


def lag_of_group(options: ShareSourceOptions) -> int | None:
    """Offsets that are not settled, whoever holds them; None where the servers do not tell: a job goes on without."""
    with ClusterClient(options.source) as cluster, suppress(ProxyError, TryAgain):
        connection = cluster.coordinator(options.group)
        if connection.version(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, VERSION) < VERSION:
            return None
        request = messages.DescribeShareGroupOffsetsRequest
        asked = request(groups=[request.DescribeShareGroupOffsetsRequestGroup(group_id=options.group, topics=None)])
        (group,) = connection.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, asked, VERSION).groups
        checked(group.error_code, f"offsets of group {options.group}")
        return _sum_of(group.topics, options.source.topics)
    return None


def _sum_of(
    topics: Sequence[messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic],
    wanted: Sequence[str],
) -> int | None:
    lags = [entry.lag for topic in topics if topic.topic_name in wanted for entry in topic.partitions]
    return sum(lags) if lags and min(lags) >= 0 else None
