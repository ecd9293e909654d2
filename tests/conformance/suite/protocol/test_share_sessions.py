"""Seeded faults of share sessions."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker


class Epochs:
    """A broker that does not know epoch -1: each request has the next epoch of its session."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, message: object) -> None:
        """Replace epoch -1."""
        epoch = message.share_session_epoch  # type: ignore[attr-defined]
        if epoch == -1:
            message.share_session_epoch = 1  # type: ignore[attr-defined]


SESSIONS = "share-groups.sessions"
FAULTS = [
    Fault("unknown-session-is-opened", f"{SESSIONS}.unknown-session-fetch", "ShareFetch",
          replace("error_code", 122, 0)),
    Fault("unknown-session-acknowledges", f"{SESSIONS}.unknown-session-acknowledge", "ShareAcknowledge",
          replace("error_code", 122, 0)),
    Fault("fetch-epoch-not-checked", f"{SESSIONS}.wrong-epoch-fetch-ahead", "ShareFetch",
          replace("error_code", 123, 0)),
    Fault("acknowledge-epoch-not-checked", f"{SESSIONS}.wrong-epoch-acknowledge-behind", "ShareAcknowledge",
          replace("error_code", 123, 0)),
    Fault("wrong-epoch-as-unknown-session", f"{SESSIONS}.wrong-epoch-fetch-behind", "ShareFetch",
          replace("error_code", 123, 122)),
    Fault("lock-duration-in-refusals", f"{SESSIONS}.unknown-session-fetch", "ShareFetch",
          put("acquisition_lock_timeout_ms", 30_000)),
    Fault("no-lock-duration", f"{SESSIONS}.lock-duration", "ShareFetch", put("acquisition_lock_timeout_ms", 0)),
    Fault("lock-duration-in-seconds", f"{SESSIONS}.lock-duration", "ShareFetch",
          put("acquisition_lock_timeout_ms", lambda ms: ms // 1000)),
    Fault("throttle-without-quota", f"{SESSIONS}.lock-duration", "ShareFetch", put("throttle_time_ms", 1000)),
    Fault("no-lock-duration-of-acknowledge", f"{SESSIONS}.lock-duration-of-acknowledge", "ShareAcknowledge",
          put("acquisition_lock_timeout_ms", 0)),
    Fault("epoch-0-acknowledges", f"{SESSIONS}.acknowledge-cannot-open", "ShareAcknowledge",
          replace("error_code", 123, 0)),
    Fault("opening-may-acknowledge", f"{SESSIONS}.acknowledgements-at-epoch-0", "ShareFetch",
          replace("error_code", 42, 0)),
    Fault("member-id-not-checked", f"{SESSIONS}.member-id-fetch-37", "ShareFetch", replace("error_code", 42, 0)),
    Fault("final-epoch-goes-on", f"{SESSIONS}.closed-by-acknowledge", "ShareAcknowledge", request=Epochs()),
    Fault("end-of-connection-unnoticed", f"{SESSIONS}.end-of-connection", keeps_connections=True),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
