"""Seeded faults of locks of share groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.conformance.suite.protocol.acknowledgement_types import types
from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

RENEW, LOCKS = "share-groups.renew", "share-groups.locks"
CODE = "responses[].partitions[].error_code"
FAULTS = [
    Fault("lock-not-renewed", f"{RENEW}.restarts-the-lock-by-acknowledge", "ShareAcknowledge", request=types(4, None)),
    Fault("lock-not-renewed-by-fetch", f"{RENEW}.restarts-the-lock-by-fetch", "ShareFetch", request=types(4, None)),
    Fault("renewal-counts", f"{RENEW}.keeps-the-count", "ShareFetch",
          put("responses[].partitions[].acquired_records[].delivery_count", lambda n: n + (n > 1))),
    Fault("renewal-without-flag", f"{RENEW}.without-flag-acknowledge-v2", "ShareAcknowledge",
          request=put("is_renew_ack", True)),
    Fault("renewal-may-fetch", f"{RENEW}.fetch-must-not-max_records", "ShareFetch", request=put("max_records", 0)),
    Fault("renewal-releases", f"{RENEW}.mixed-types", "ShareAcknowledge", request=types(4, 2)),
    Fault("duration-not-updated", f"{RENEW}.changed-duration", "ShareAcknowledge",
          put("acquisition_lock_timeout_ms", 30_000)),
    Fault("renewed-by-another", f"{RENEW}.not-held", "ShareAcknowledge", replace(CODE, 121, 0)),
    Fault("late-acknowledgement-accepted", f"{LOCKS}.late-acknowledgement", "ShareAcknowledge",
          replace(CODE, 121, 0)),
    Fault("expiry-does-not-count", f"{LOCKS}.expire", "ShareFetch",
          put("responses[].partitions[].acquired_records[].delivery_count", 1)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
