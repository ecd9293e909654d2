"""Seeded faults of dead letters, which brokers have from 4.4 on."""

from __future__ import annotations

import pytest

from tests.conformance.suite.protocol.acknowledgement_types import types
from tests.support.brokers import QUICK, Running
from tests.support.faulty_broker import Fault, put
from tests.support.seeded_faults import assert_caught
from tests.support.worlds import warm_up

pytestmark = pytest.mark.broker


FAULTS = [
    Fault("rejected-is-accepted", "dead-letters.rejected", "ShareAcknowledge", request=types(3, 1)),
    Fault("released-is-accepted", "dead-letters.exhausted", "ShareAcknowledge", request=types(2, 1)),
    Fault("record-not-copied", "dead-letters.copied", "IncrementalAlterConfigs",
          request=put("resources[].configs", lambda configs: [c for c in configs if "copy" not in c.name])),
    Fault("gap-is-dead", "dead-letters.not-gap", "ShareAcknowledge", request=types(0, 3)),
    Fault("written-without-permission", "dead-letters.without-permission", "ListOffsets",
          put("topics[].partitions[].offset", 1)),
    Fault("any-name", "dead-letters.internal-name", "IncrementalAlterConfigs", put("responses[].error_code", 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(running: Running) -> None:
    kafka = running.cluster("4.4.0", properties=QUICK, features=["share.version=2"])
    warm_up(kafka.bootstrap)
    assert_caught(kafka.bootstrap, FAULTS)
