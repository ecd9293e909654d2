"""Batches go from the job's process to the source over a socket of this user alone (pipeline/README.md rule 47)."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.share.acquirer import NotAcknowledged
from kafka_share_proxy.pipeline.share.handover import Handover, HandoverClient, HandoverFailed
from kafka_share_proxy.pipeline.share.share_offsets import ShareOffset
from kafka_share_proxy.wire.values import TopicPartition

BATCH = ShareOffset(3, [(TopicPartition("orders", 0), OffsetSpan(5, 9))], {"orders": bytes(16)})


class Acquirer:
    """Acquirer with one batch after number 2."""

    def __init__(self) -> None:
        self.reported: list[ShareOffset] = []

    def acquire(self, after: int) -> ShareOffset | None:
        if after > 3:
            raise NotAcknowledged("batch 3 was not acknowledged")
        return BATCH if after == 2 else None

    def planned(self, offset: ShareOffset) -> None:
        self.reported.append(offset)


@pytest.fixture
def acquirer() -> Any:
    return Acquirer()


@pytest.fixture
def handover(acquirer: Any) -> Iterator[Handover]:
    with Handover(acquirer) as opened:
        yield opened


@pytest.fixture
def client(handover: Handover) -> Iterator[HandoverClient]:
    handover_client = HandoverClient(handover.path)
    yield handover_client
    handover_client.close()


def test_batches_and_plans_cross(client: HandoverClient, acquirer: Any) -> None:
    assert client.acquire(2) == BATCH
    assert client.acquire(3) is None
    client.planned(BATCH)
    assert acquirer.reported == [BATCH]


def test_a_failure_is_reported_with_its_reason_and_the_next_call_works(client: HandoverClient) -> None:
    with pytest.raises(HandoverFailed, match="batch 3 was not acknowledged"):
        client.acquire(4)
    assert client.acquire(2) == BATCH


def test_no_other_user_has_access(handover: Handover) -> None:
    assert stat.S_IMODE(Path(handover.path).parent.stat().st_mode) == 0o700


def test_a_lost_job_is_reported(acquirer: Any) -> None:
    with Handover(acquirer) as handover:
        client = HandoverClient(handover.path)
        assert client.acquire(2) == BATCH
    for _ in range(2):  # closed under way, and not there any longer
        with pytest.raises(HandoverFailed, match="the process that acquires for this query has ended"):
            client.acquire(2)
    assert not Path(handover.path).parent.exists()
