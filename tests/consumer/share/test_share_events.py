"""Events from an application to a share consumer."""

from __future__ import annotations

from kafka_share_proxy.consumer.share.share_events import AwaitAcknowledgements


def test_a_call_waits_for_everything_unless_it_names_offsets() -> None:
    assert AwaitAcknowledgements(1).only is None
