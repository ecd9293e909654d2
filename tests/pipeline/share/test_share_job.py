"""Log lines of the job `share` about its batches (pipeline/README.md rule 49); it runs in test_share_stream.py."""

from __future__ import annotations

from kafka_share_proxy.pipeline.share import share_job
from kafka_share_proxy.pipeline.share.acquirer import Totals


def test_a_batch_is_told_with_what_became_of_all_so_far() -> None:
    report = {"batchId": 3, "numInputRows": 7, "batchDuration": 1_250}
    assert share_job.line_of(report, Totals(40, 7, 2), 5, 60) == (
        "batch 3: 7 rows in 1.2 s, lag 60; so far 40 offsets acknowledged, 7 came again, "
        "2 not held any more, 5 renewals"
    )
    assert ", lag unknown; so far" in share_job.line_of(report, Totals(), 0, None)
