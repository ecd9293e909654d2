"""Seeded faults of acknowledgements, locks and renewals."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.conformance.suite.protocol.acknowledgement_types import types
from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker


ACKNOWLEDGE = "share-groups.acknowledge"
CODE, FETCHED_CODE = "responses[].partitions[].error_code", "responses[].partitions[].acknowledge_error_code"
FAULTS = [
    Fault("accept-releases", f"{ACKNOWLEDGE}.accept-by-acknowledge", "ShareAcknowledge", request=types(1, 2)),
    Fault("accept-is-dropped", f"{ACKNOWLEDGE}.accept-by-fetch", "ShareFetch", request=types(1, None)),
    Fault("release-accepts", f"{ACKNOWLEDGE}.release-by-acknowledge", "ShareAcknowledge", request=types(2, 1)),
    Fault("release-is-dropped", f"{ACKNOWLEDGE}.release-by-fetch", "ShareFetch", request=types(2, None)),
    Fault("reject-releases", f"{ACKNOWLEDGE}.reject-by-acknowledge", "ShareAcknowledge", request=types(3, 2)),
    Fault("gap-releases", f"{ACKNOWLEDGE}.own-type-of-each-by-acknowledge", "ShareAcknowledge", request=types(0, 2)),
    Fault("foreign-records-accepted", f"{ACKNOWLEDGE}.not-held", "ShareAcknowledge", replace(CODE, 121, 0)),
    Fault("state-as-invalid-request", f"{ACKNOWLEDGE}.twice", "ShareAcknowledge", replace(CODE, 121, 42)),
    Fault("shape-not-checked", f"{ACKNOWLEDGE}.shape-descending-by-acknowledge", "ShareAcknowledge",
          replace(CODE, 42, 0)),
    Fault("shape-not-reported-by-fetch", f"{ACKNOWLEDGE}.shape-type-5-by-fetch", "ShareFetch", put(FETCHED_CODE, 0)),
    Fault("shape-fails-the-request", f"{ACKNOWLEDGE}.partitions-are-independent", "ShareAcknowledge",
          put(CODE, 42)),
    Fault("below-start-is-refused", f"{ACKNOWLEDGE}.below-the-start-offset", "ShareAcknowledge", put(CODE, 121)),
    Fault("result-missing-with-records", f"{ACKNOWLEDGE}.piggybacked-result-with-records", "ShareFetch",
          put(FETCHED_CODE, 121)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
