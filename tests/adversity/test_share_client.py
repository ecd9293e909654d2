"""The demonstration's share consumer when a broker refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.localkafka.share_client import ACCEPT, Record, ShareClient, ShareError

from tests.support.raw import Raw, until


@pytest.mark.parametrize(("code", "name"), [(121, "INVALID_RECORD_STATE"), (9999, "unknown")])
def test_a_refusal_is_told_by_its_code_and_name(code: int, name: str) -> None:
    """On every supported Python, and for unknown codes."""
    error = ShareError("acknowledgement", code, "because")
    assert str(error) == f"acknowledgement: error {code} ({name}), because"
    assert error.code == code


@pytest.mark.broker
def test_records_of_a_partition_that_goes_to_another_member_are_acknowledged_before_it_goes(
    proxy_39_quick: Front, fresh: Callable[[str], str]
) -> None:
    """A second member joins while the first holds records of both partitions: that one keeps both until it has none."""
    group = fresh("group")
    with Raw(proxy_39_quick.bootstrap) as raw:
        topic = raw.create_topic(fresh("topic"), 2)
        raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
        for partition in (0, 1):
            raw.produce(topic, 1, partition=partition)
    with ShareClient(proxy_39_quick.bootstrap, group, [topic.name]) as first:
        held: list[Record] = []
        until(lambda: held.extend(first.poll(0.5)) or len(held) == 2, "both records")
        with ShareClient(proxy_39_quick.bootstrap, group, [topic.name]) as second:
            assert len(second._assigned) == 1
            first._heartbeat(first._member_epoch)
            assert len(first._assigned) == 2
            first.acknowledge(held, ACCEPT)
            first._heartbeat(first._member_epoch)
            assert len(first._assigned) == 1
            assert second.poll(0.5) == []
