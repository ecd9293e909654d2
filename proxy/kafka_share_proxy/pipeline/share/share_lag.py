"""Lag of a share group (pipeline/README.md rule 49; KIP-1226)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from kafka_share_proxy.pipeline.kafka.cluster import ClusterClient, TryAgain, checked
from kafka_share_proxy.pipeline.share.share_options import ShareSourceOptions
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ProxyError

VERSION = 1
"""First version of the request whose response contains the lag."""


def lag_of_group(options: ShareSourceOptions) -> int | None:
    """Return the number of offsets that are not settled, including those that members hold.

    Return None if the servers do not report it: a job runs without.
    """
    with ClusterClient(options.source) as cluster, suppress(ProxyError, TryAgain):
        connection = cluster.coordinator(options.group)
        if connection.version(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, VERSION) < VERSION:
            return None
        request = messages.DescribeShareGroupOffsetsRequest
        asked = request(groups=[request.DescribeShareGroupOffsetsRequestGroup(group_id=options.group, topics=None)])
        (group,) = connection.send_request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, asked, VERSION).groups
        checked(group.error_code, f"offsets of group {options.group}")
        return _sum_of(group.topics, options.source.topics)
    return None


def _sum_of(
    topics: Sequence[messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic],
    wanted: Sequence[str],
) -> int | None:
    lags = [entry.lag for topic in topics if topic.topic_name in wanted for entry in topic.partitions]
    return sum(lags) if lags and min(lags) >= 0 else None
