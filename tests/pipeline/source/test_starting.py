"""Start of a stream (pipeline/README.md rule 35)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.source.options import BadOption, read_options
from kafka_share_proxy.pipeline.source.starting import FILE, KeptStart, kept_start

from tests.pipeline.conftest import produce_keys
from tests.support.raw import Raw, Topic


@pytest.mark.broker
@pytest.mark.slow
def test_latest_is_resolved_once_and_kept(
    spark: Any, views_front: Front, raw: Raw, orders: Topic, tmp_path: Path
) -> None:
    options = {"bootstrap": views_front.bootstrap, "topic": orders.name, "startingOffsets": "latest"}
    start = kept_start(spark, options, str(tmp_path))
    assert json.loads(start.offsets) == {orders.name: {"0": 1_500, "1": 1_500}}
    produce_keys(raw, orders, 10)
    assert kept_start(spark, options, f"{tmp_path}/") == start
    assert (tmp_path / FILE).is_file()
    with pytest.raises(BadOption, match=f"is that of {orders.name}, not of payments: take another folder"):
        kept_start(spark, options | {"topic": "payments"}, str(tmp_path))


def test_the_start_replaces_the_requested_offsets() -> None:
    start = KeptStart("ab12", "orders", '{"orders": {"0": 7}}')
    options = start.options({"bootstrap": "one", "topic": "orders", "STARTINGOFFSETS": "latest"})
    assert read_options(options).starting == {("orders", 0): 7}
