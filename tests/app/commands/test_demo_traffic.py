"""Clients of the demonstration, without a broker."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
from kafka_share_proxy.app.commands import demo_traffic
from kafka_share_proxy.app.commands.demo_traffic import (
    DemoMember,
    RecordPlace,
    TrafficFailed,
    ZipfKeys,
    shares_of_slots,
    until_done,
)
from kafka_share_proxy.client.share_records import ShareRecord
from kafka_share_proxy.consumer.events import BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
P0 = TopicPartition("orders", 0)


class Acknowledged:
    """Share consumer that notes acknowledgements. The brokers refuse them with a code, or locks are lost before."""

    def __init__(self, code: int = 0, *, lost: bool = False) -> None:
        self.acknowledgements: list[tuple[int, list[int]]] = []
        self._code, self._lost = code, lost

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = ACCEPT) -> bool:
        if not self.acknowledgements or self.acknowledgements[-1][0] != kind:
            self.acknowledgements.append((kind, []))
        self.acknowledgements[-1][1].append(record.offset)
        return not self._lost

    async def renew(self, *records: ShareRecord) -> None:
        self.acknowledgements.append((RENEW, [record.offset for record in records]))

    async def commit(self) -> dict[TopicPartition, ConsumerError | None]:
        return {P0: BrokerRefused("ShareAcknowledge", self._code) if self._code else None}


def share_records(count: int) -> list[ShareRecord]:
    return [ShareRecord("orders", 0, b"k", b"v", (), 0, offset, 0, 1, 1) for offset in range(count)]


def member(habit: Any) -> DemoMember:
    demo_member = DemoMember("ann", "nowhere:1", "billing", "orders", habit)
    demo_member.polls = 1
    demo_member.end()  # no waiting
    return demo_member


def left_by(habit: Any, client: Acknowledged, count: int = 20, polls: int = 1) -> list[int]:
    one = member(habit)
    one.polls = polls
    return [record.offset for record in trio.run(habit, one, client, share_records(count))]


def test_keys_follow_zipf_and_are_the_same_for_the_same_seed() -> None:
    keys = ZipfKeys(3).drawn(50_000)
    assert keys == ZipfKeys(3).drawn(50_000)
    counts = Counter(keys)
    assert counts[b"user-0"] / counts[b"user-1"] == pytest.approx(2**demo_traffic.EXPONENT, rel=0.1)
    assert counts[b"user-0"] / len(keys) < 1 / 8  # a plan of eight ranges can be even


def test_habits_do_what_the_demonstration_says_of_them() -> None:
    client = Acknowledged()
    assert left_by(demo_traffic.accepts, client) == list(range(20))
    assert left_by(demo_traffic.forgets, client) == []
    assert client.acknowledgements == []
    assert left_by(demo_traffic.releases, client) == [offset for offset in range(20) if offset % 10]
    assert client.acknowledgements == [(RELEASE, [0, 10])]
    client = Acknowledged()
    assert left_by(demo_traffic.renews, client, 3) == [0]
    assert client.acknowledgements == [(ACCEPT, [1, 2]), *[(RENEW, [0])] * 2 * demo_traffic.RENEWED_LOCKS]


@pytest.mark.parametrize("habit", [demo_traffic.forgets, demo_traffic.releases, demo_traffic.renews])
def test_odd_habits_end_so_that_all_records_are_accepted(habit: Any) -> None:
    client = Acknowledged()
    assert left_by(habit, client, polls=demo_traffic.ODD_POLLS + 1) == list(range(20))
    assert client.acknowledgements == []


def test_a_lock_that_ran_out_is_no_trouble_and_its_records_are_not_done() -> None:
    one = member(demo_traffic.accepts)
    for expired in (Acknowledged(ErrorCode.INVALID_RECORD_STATE), Acknowledged(lost=True)):
        trio.run(one.accept, expired, share_records(2))
        assert one.got == set()
    with pytest.raises(ConsumerError):
        trio.run(one.accept, Acknowledged(ErrorCode.GROUP_ID_NOT_FOUND), share_records(2))
    trio.run(one.accept, Acknowledged(), share_records(2))
    assert one.got == {RecordPlace(0, 0), RecordPlace(0, 1)}


def test_clients_that_do_not_come_to_an_end_are_named() -> None:
    one = member(demo_traffic.accepts)
    one.got = {RecordPlace(0, 0)}
    assert list(until_done([one], 1, 1)) == [1]
    with pytest.raises(TrafficFailed, match="ann did 1 of 2 records in 0 s"):
        list(until_done([one], 2, 0.3))
    one.trouble = "ann: error 7"
    with pytest.raises(TrafficFailed, match="ann: error 7"):
        list(until_done([one], 2, 10))


def test_the_share_of_a_slot_is_that_of_all_its_partitions() -> None:
    one = member(demo_traffic.accepts)
    one.got = {RecordPlace(0, 0), RecordPlace(0, 1), RecordPlace(1, 0), RecordPlace(2, 0)}
    assert shares_of_slots([one], 2) == [0.75, 0.25]
