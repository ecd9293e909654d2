"""Conditions and records fields of a case."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.suite import case_run
from kafka_share_proxy.conformance.suite.capabilities import Capabilities
from kafka_share_proxy.conformance.suite.case_run import CaseRun, spans_of, values_of
from kafka_share_proxy.conformance.suite.cluster_under_test import ClusterUnderTest
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.expectations import Mismatch, NotOffered
from kafka_share_proxy.wire.records import records

from tests.support.scripted_peer import scripted_peer, versions

KNOWN = {18: (0, 3)}


async def test_a_condition_is_awaited_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_run, "PAUSE_S", 0.001)
    run = CaseRun(ClusterUnderTest(Dialling([]), KNOWN), Capabilities("4.3", KNOWN, {}))
    results = iter([0, 0, 7])

    async def condition() -> int:
        return next(results, 0)

    assert await run.until(condition, "a number") == 7
    with pytest.raises(Mismatch, match="a number: expected within 0 s"):
        await run.until(condition, "a number", 0.02)


async def test_a_named_version_must_be_offered() -> None:
    async with scripted_peer(lambda *_: versions()) as address:
        run = CaseRun(ClusterUnderTest(Dialling([address]), KNOWN), Capabilities("4.3", KNOWN, {}))
        with pytest.raises(NotOffered, match="ApiVersions version 4 is not offered"):
            await run.request("ApiVersions", version=4)
        assert (await run.request("ApiVersions", version=2)).error_code == 0
        await run.aclose()


def test_records_are_read_without_markers() -> None:
    batch = records.build_batch(3, [records.Record(value=b"a"), records.Record(value=None)])
    marker = records.build_batch(5, [records.Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")], is_control=True)
    assert values_of(batch + marker) == [(3, b"a"), (4, None)]
    assert spans_of(batch + marker) == [(3, 4, 2), (5, 5, 1)]
    assert (values_of(None), spans_of(b"")) == ([], [])
