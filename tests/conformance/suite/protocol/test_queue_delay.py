"""Seeded faults of redelivery delay, which the proxy has."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.redelivery_delay import APPLIED, DELAY_MS_MAX, tags_of

from tests.conformance.suite.protocol.acknowledgement_types import types
from tests.conformance.suite.protocol.later_spans import later_spans, lost
from tests.support.faulty_broker import Change, Fault, other_setting, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("quick")]

DELAY = "queues.delay"
START = "groups[].topics[].partitions[].start_offset"
CODE = "responses[].partitions[].error_code"
TAGS = "topics[].partitions[].acknowledgement_batches[].unknown_tags"


def delay(delay_ms: int) -> Change:
    """Return a change of requests: the peer then delays each release by this time."""
    return put(TAGS, lambda _: tags_of(delay_ms))


ACCEPTED = put("responses[].error_code", 0)
FAULTS = [
    Fault("released-without-delay", f"{DELAY}.released", "ShareAcknowledge", request=delay(0)),
    other_setting("expired-without-delay", f"{DELAY}.expired", "share.redelivery.delay.ms", "0"),
    Fault("expiry-not-counted", f"{DELAY}.expired", "ShareFetch",
          put("responses[].partitions[].acquired_records[].delivery_count", 1)),
    Fault("delay-does-not-grow", f"{DELAY}.grows", "ShareAcknowledge", request=delay(200)),
    Fault("delay-without-maximum", f"{DELAY}.maximum", "ShareAcknowledge", request=delay(60_000)),
    Fault("ended-session-delays", f"{DELAY}.ended-session", "ShareFetch", later_spans(lost)),
    Fault("others-wait-too", f"{DELAY}.others", "ShareFetch", later_spans(lost)),
    Fault("start-offset-moves", f"{DELAY}.start-offset", "DescribeShareGroupOffsets", put(START, 3)),
    Fault("waiting-outside-the-window", f"{DELAY}.window", "ShareAcknowledge", request=types(2, 1)),
    *(Fault(f"{name}-accepted-while-waiting", f"{DELAY}.not-held-{name}", "ShareAcknowledge", replace(CODE, 121, 0))
      for name in ("accept", "release", "reject")),
    Fault("last-delivery-waits", f"{DELAY}.last-delivery", "DescribeShareGroupOffsets", put(START, 0)),
    Fault("named-delay-not-confirmed", f"{DELAY}.named", "ShareAcknowledge", request=put(TAGS, ())),
    Fault("named-delay-confirmed-only", f"{DELAY}.named", "ShareAcknowledge", request=delay(0)),
    Fault("named-zero-ignored", f"{DELAY}.named-zero", "ShareAcknowledge", request=put(TAGS, ())),
    Fault("last-named-for-all", f"{DELAY}.named-each", "ShareAcknowledge", request=delay(0)),
    Fault("negative-is-none", f"{DELAY}.named-negative", "ShareAcknowledge", request=delay(0)),
    Fault("too-long-is-longest", f"{DELAY}.named-too-long", "ShareAcknowledge", request=delay(DELAY_MS_MAX)),
    Fault("always-confirmed", f"{DELAY}.not-named", "ShareAcknowledge",
          put("responses[].partitions[].unknown_tags", APPLIED)),
    Fault("changed-immediately", f"{DELAY}.changed", "ShareAcknowledge", request=delay(500)),
    Fault("delay-stays", f"{DELAY}.removed", "ShareFetch", later_spans(lost)),
    Fault("delayed-by-default", f"{DELAY}.off-by-default", "ShareAcknowledge", request=delay(60_000)),
    *(Fault(f"{name}-accepted", f"{DELAY}.refused-{name}", "IncrementalAlterConfigs", ACCEPTED)
      for name in ("too-long", "negative", "maximum-too-long", "multiplier-below-one", "multiplier-no-number")),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(proxy_39_quick: Front) -> None:
    assert_caught(proxy_39_quick.bootstrap, FAULTS)
