"""Batches of producers with ids."""

from __future__ import annotations

from typing import cast

import pytest
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cluster_under_test import SetUpFailed
from kafka_share_proxy.conformance.suite.transactional_producers import Producer, check
from kafka_share_proxy.wire.records import records

NO_RUN = cast(CaseRun, None)


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_batch_has_the_ids_of_its_producer(transactional_id: str | None) -> None:
    producer = Producer(NO_RUN, 7, 2, transactional_id)
    (batch,) = records.iter_batches(producer.batch(3, 11))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.records_count) == (7, 2, 11, 3)
    assert batch.is_transactional is (transactional_id is not None)


def test_an_error_of_the_preparation_is_named() -> None:
    check(0, "EndTxn")
    with pytest.raises(SetUpFailed, match="EndTxn: INVALID_TXN_STATE"):
        check(48, "EndTxn")
