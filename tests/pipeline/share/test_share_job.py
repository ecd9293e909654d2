"""Log lines of the job `share` about its batches, and the lag in them (pipeline/README.md rule 49).

The job runs in test_share_stream.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.pipeline.share import share_job
from kafka_share_proxy.pipeline.share.acquirer import Totals
from kafka_share_proxy.pipeline.share.share_job import lag_of_group
from kafka_share_proxy.pipeline.share.share_options import read_share_options
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support import blocking_server
from tests.support.blocking_server import BlockingServer


def test_a_batch_is_reported_with_all_outcomes_so_far() -> None:
    report = {"batchId": 3, "numInputRows": 7, "batchDuration": 1_250}
    assert share_job.line_of(report, Totals(40, 7, 2), 5, 60) == (
        "batch 3: 7 rows in 1.2 s, lag 60; so far 40 offsets acknowledged, 7 delivered again, 2 no longer held, "
        "5 renewals"
    )
    assert ", lag unknown; so far" in share_job.line_of(report, Totals(), 0, None)


def lag_of(lags: list[int], version: int = 1, code: int = 0) -> int | None:
    """Return the text about a group with these lags in one of its topics, and 1,000 in another."""

    def responses(header: Any, request: Any) -> Any:
        if header.key == ApiKey.FIND_COORDINATOR:
            return messages.FindCoordinatorResponse(host="127.0.0.1", port=server.port)
        response = messages.DescribeShareGroupOffsetsResponse
        of_topic, of_part = (
            response.DescribeShareGroupOffsetsResponseTopic,
            response.DescribeShareGroupOffsetsResponsePartition,
        )
        parts = [of_part(partition_index=number, lag=lag) for number, lag in enumerate(lags)]
        topics = [of_topic(topic_name="orders", partitions=parts)]
        topics.append(of_topic(topic_name="other", partitions=[of_part(lag=1_000)]))
        group = response.DescribeShareGroupOffsetsResponseGroup(
            group_id=request.groups[0].group_id, topics=topics, error_code=code
        )
        return response(groups=[group])

    more = {ApiKey.FIND_COORDINATOR: (0, 4), ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, version)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocking_server, "OFFERED", blocking_server.OFFERED | more)
        with BlockingServer(responses) as server:
            options = {"bootstrap": server.bootstrap, "topic": "orders", "group": "lake", "timeoutMs": "2000"}
            return lag_of_group(read_share_options(options))


def test_the_lag_is_that_of_the_topics_that_are_read() -> None:
    assert lag_of([5, 7]) == 12


@pytest.mark.parametrize(
    ("lags", "version", "code"),
    [([5, -1], 1, 0), ([], 1, 0), ([5], 0, 0), ([5], 1, int(ErrorCode.GROUP_AUTHORIZATION_FAILED))],
)
def test_a_missing_lag_is_unknown(lags: list[int], version: int, code: int) -> None:
    assert lag_of(lags, version, code) is None
