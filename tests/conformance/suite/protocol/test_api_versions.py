"""Seeded faults of headers, frames and layouts."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

LAYOUT = "apiversions.layout"
FAULTS = [
    Fault("correlation-id-one-too-high", "apiversions.header.correlation-id-0", "ApiVersions",
          frame=lambda frame: (int.from_bytes(frame[:4], "big") + 1).to_bytes(4, "big") + frame[4:]),
    Fault("byte-too-many", f"{LAYOUT}.Metadata.v12", "Metadata", frame=lambda frame: frame + b"\0"),
    Fault("byte-too-few", f"{LAYOUT}.Metadata.v9", "Metadata", frame=lambda frame: frame[:-1]),
    Fault("header-without-tags", f"{LAYOUT}.Heartbeat.v4", "Heartbeat", frame=lambda frame: frame[:4] + frame[5:]),
    Fault("header-with-tags", f"{LAYOUT}.Heartbeat.v3", "Heartbeat", frame=lambda frame: frame[:4] + b"\0" + frame[4:]),
    Fault("tags-in-api-versions", "apiversions.versions.v3", "ApiVersions",
          frame=lambda frame: frame[:4] + b"\0" + frame[4:]),
    Fault("response-twice", "apiversions.versions.same-in-all", "ApiVersions", copies=2),
    Fault("responses-out-of-order", "apiversions.frames.pipelined", swaps=True),
    Fault("response-to-nothing", f"{LAYOUT}.ListGroups.v5", "ListGroups", put("error_code", -1)),
    Fault("range-upside-down", "apiversions.versions.v0", "ApiVersions", put("api_keys[].max_version", -1)),
    Fault("own-range-too-low", "apiversions.versions.v3", "ApiVersions", put("api_keys[].max_version", 0)),
    Fault("name-not-checked", "apiversions.versions.software-name-space", "ApiVersions", replace("error_code", 42, 0)),
    Fault("truncated-is-kept", "apiversions.truncated.Metadata", keeps_connections=True),
    Fault("unknown-version-is-kept", "apiversions.too-high.Fetch", keeps_connections=True),
    Fault("null-is-kept", "apiversions.null.JoinGroup", keeps_connections=True),
    Fault("wrong-code-in-old-version", f"{LAYOUT}.ListOffsets.v1", "ListOffsets",
          replace("topics[].partitions[].error_code", 3, 6)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
