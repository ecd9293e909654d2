"""Seeded faults of key order, which the proxy has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.records import records

from tests.conformance.suite.protocol.acknowledgement_types import types
from tests.support.faulty_broker import Change, Fault, other_setting, put
from tests.support.seeded_faults import assert_caught

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("quick")]

ORDER = "queues.order"
PARTITIONS = "responses[].partitions[]"
SPANS = f"{PARTITIONS}.acquired_records"


def keys(change: Callable[[bytes | None], bytes | None]) -> Change:
    """Return a change of the keys in Produce requests: the peer then compares other keys."""

    def rebuilt(data: Any) -> bytes:
        view = memoryview(data)
        now = int(time.time() * 1000)
        keyed = [
            records.Record(key=change(record.key), value=record.value, timestamp=now)
            for batch in records.iter_batches(view)
            for record in records.decode_records(view[batch.position : batch.end])
        ]
        return records.build_batch(0, keyed)

    return put("topic_data[].partition_data[].records", rebuilt)


def ignored(_key: bytes | None) -> None:
    return None


def the_same(_key: bytes | None) -> bytes:
    return b"same"


def first_record_only(data: Any) -> Any:
    decoded = records.decode_records(memoryview(data)) if data else []
    return records.build_batch(decoded[0].offset, decoded[:1]) if decoded else data


def without(hidden: Callable[[Any], bool]) -> Callable[[Any], Any]:
    return lambda spans: [each for each in spans if not hidden(each)]


def second_partition_blocked(message: Any) -> None:
    for topic in message.responses:
        for partition in topic.partitions:
            if partition.partition_index == 1:
                partition.acquired_records = []


ACCEPTED = put("responses[].error_code", 0)
FAULTS = [
    Fault("keys-ignored", f"{ORDER}.one-at-a-time", "Produce", request=keys(ignored)),
    Fault("keys-of-one-batch", f"{ORDER}.across-batches", "Produce", request=keys(ignored)),
    Fault("accepted-blocks", f"{ORDER}.freed-accepted", "ShareAcknowledge", request=types(1, 2)),
    Fault("rejected-blocks", f"{ORDER}.freed-rejected", "ShareAcknowledge", request=types(3, 2)),
    Fault("gap-blocks", f"{ORDER}.freed-gap", "ShareAcknowledge", request=types(0, 2)),
    Fault("renewal-frees", f"{ORDER}.renewed", "ShareAcknowledge", request=types(4, 1)),
    Fault("release-frees", f"{ORDER}.released", "ShareAcknowledge", request=types(2, 1)),
    Fault("order-lost-with-the-lock", f"{ORDER}.expired", "Produce", request=keys(ignored)),
    Fault("order-lost-with-the-session", f"{ORDER}.ended-session", "Produce", request=keys(ignored)),
    Fault("archived-early", f"{ORDER}.used-up", "ShareAcknowledge", request=types(2, 3)),
    Fault("no-key-is-a-key", f"{ORDER}.without-key", "Produce", request=keys(the_same)),
    Fault("empty-key-is-no-key", f"{ORDER}.empty-key", "Produce", request=keys(ignored)),
    Fault("compressed-keys-ignored", f"{ORDER}.compressed", "Produce", request=keys(ignored)),
    Fault("aborted-delivered", f"{ORDER}.aborted", "EndTxn", request=put("committed", True)),
    other_setting("aborted-blocks", f"{ORDER}.aborted", "share.isolation.level", "read_uncommitted"),
    other_setting("never-uncommitted", f"{ORDER}.aborted-uncommitted", "share.isolation.level", "read_committed"),
    Fault("every-key-blocked", f"{ORDER}.other-keys", "Produce", request=keys(the_same)),
    Fault("members-blocked", f"{ORDER}.other-member", "Produce", request=keys(the_same)),
    Fault("partitions-blocked", f"{ORDER}.partitions", "ShareFetch", second_partition_blocked),
    Fault("groups-not-ordered", f"{ORDER}.groups", "Produce", request=keys(ignored)),
    Fault("limit-not-exact", f"{ORDER}.record-limit", "ShareFetch", request=put("max_records", 3)),
    Fault("batches-cut", f"{ORDER}.whole-batches", "ShareFetch", put(f"{PARTITIONS}.records", first_record_only)),
    other_setting("scan-without-end", f"{ORDER}.scan-records", "share.ordering.scan.records", "10000"),
    other_setting("scan-one-further", f"{ORDER}.scan-records", "share.ordering.scan.records", "101"),
    Fault("scan-stands-still", f"{ORDER}.scan-records", "ShareAcknowledge", request=types(1, 2)),
    Fault("scan-ends-at-the-locks", f"{ORDER}.beyond-the-locks", "ShareFetch",
          put(SPANS, without(lambda span: span.first_offset >= 100))),
    Fault("switch-ignored", f"{ORDER}.switched-on", "Produce", request=keys(ignored)),
    Fault("still-ordered", f"{ORDER}.switched-off", "ShareFetch", put(f"{SPANS}[].last_offset", lambda n: min(n, 1))),
    Fault("ordered-by-default", f"{ORDER}.off-by-default", "ShareFetch", put(f"{SPANS}[].last_offset", 0)),
    *(Fault(f"{name}-accepted", f"{ORDER}.refused-{name}", "IncrementalAlterConfigs", ACCEPTED)
      for name in ("unknown-order", "scan-too-small", "scan-no-number")),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(proxy_39_quick: Front) -> None:
    assert_caught(proxy_39_quick.bootstrap, FAULTS)
