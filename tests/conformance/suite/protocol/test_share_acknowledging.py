"""Seeded faults of acknowledgements, locks and renewals."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Change, Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker


def types(old: int, new: int | None) -> Change:
    """Return a change of acknowledgement types in a request; None drops the batches with the type."""

    def apply(message: object) -> None:
        for topic in message.topics:  # type: ignore[attr-defined]
            for partition in topic.partitions:
                batches = partition.acknowledgement_batches
                for batch in batches:
                    batch.acknowledge_types = [
                        new if kind == old and new is not None else kind for kind in batch.acknowledge_types
                    ]
                if new is None:
                    partition.acknowledgement_batches = [b for b in batches if old not in b.acknowledge_types]

    return apply


ACKNOWLEDGE, RENEW, LOCKS = "share-groups.acknowledge", "share-groups.renew", "share-groups.locks"
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
