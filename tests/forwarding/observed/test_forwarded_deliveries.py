"""Recorded deliveries of broker-side share groups, against a model of single offsets."""

from __future__ import annotations

import random

import pytest
from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.forwarding.observed.forwarded_deliveries import Delivery, ForwardedDeliveries, SharedPlace

SHARE = SharedPlace("g", Place(bytes(16), 0))
OTHER = SharedPlace("h", Place(bytes(16), 0))


def delivery(first: int, last: int, attempt: int = 1, member: str = "m") -> Delivery:
    return Delivery(first, last, attempt, member, 0.0, 30.0)


@pytest.fixture
def deliveries() -> ForwardedDeliveries:
    return ForwardedDeliveries()


def settled(
    deliveries: ForwardedDeliveries, first: int, last: int, member: str = "m"
) -> list[tuple[int, int, int | None]]:
    """The pieces, with their delivery counts."""
    settled_spans = deliveries.settled(SHARE, first, last, member)
    return [(start, end, None if each is None else each.attempt) for start, end, each in settled_spans]


def test_a_settled_range_is_reported_by_its_deliveries(deliveries: ForwardedDeliveries) -> None:
    deliveries.acquired(SHARE, delivery(0, 9))
    deliveries.acquired(SHARE, delivery(10, 14, 2))
    deliveries.acquired(SHARE, delivery(20, 24))
    assert settled(deliveries, 5, 21) == [(5, 9, 1), (10, 14, 2), (15, 19, None), (20, 21, 1)]
    assert settled(deliveries, 0, 24) == [(0, 4, 1), (5, 21, None), (22, 24, 1)]
    assert len(deliveries) == 0


def test_what_is_delivered_again_is_the_new_delivery(deliveries: ForwardedDeliveries) -> None:
    deliveries.acquired(SHARE, delivery(0, 9))
    deliveries.acquired(SHARE, delivery(3, 5, 2, "other"))
    assert settled(deliveries, 3, 5, "other") == [(3, 5, 2)]
    assert settled(deliveries, 0, 9) == [(0, 2, 1), (3, 5, None), (6, 9, 1)]


def test_a_delivery_to_another_member_says_nothing_of_this_one(deliveries: ForwardedDeliveries) -> None:
    deliveries.acquired(SHARE, delivery(0, 9))
    assert settled(deliveries, 0, 9, "other") == [(0, 9, None)]


def test_renewals_count_for_the_offsets_and_the_member_that_renewed(deliveries: ForwardedDeliveries) -> None:
    deliveries.acquired(SHARE, delivery(0, 9))
    deliveries.renewed(SHARE, 4, 5, "m")
    deliveries.renewed(SHARE, 5, 5, "m")
    deliveries.renewed(SHARE, 0, 9, "other")
    renewed_spans = [(start, end, each.renewals) for start, end, each in deliveries.settled(SHARE, 0, 9, "m") if each]
    assert renewed_spans == [(0, 3, 0), (4, 4, 1), (5, 5, 2), (6, 9, 0)]


def test_kept_deliveries_stay_within_the_limits() -> None:
    deliveries = ForwardedDeliveries(deliveries_max=30, share_max=20)
    for number in range(100):
        deliveries.acquired(SHARE, delivery(number * 2, number * 2))
    assert len(deliveries) == 20
    assert settled(deliveries, 158, 160) == [(158, 159, None), (160, 160, 1)]
    for number in range(15):
        deliveries.acquired(OTHER, delivery(number * 2, number * 2))
    assert len(deliveries) == 15
    assert settled(deliveries, 190, 190) == [(190, 190, None)]


@pytest.mark.parametrize("seed", range(20))
def test_every_offset_is_reported_once_with_its_last_delivery(seed: int) -> None:
    dice, deliveries, model = random.Random(seed), ForwardedDeliveries(), dict[int, tuple[int, str]]()
    for attempt in range(200):
        first = dice.randrange(60)
        last, member = first + dice.randrange(12), dice.choice("ab")
        if dice.random() < 0.5:
            deliveries.acquired(SHARE, delivery(first, last, attempt, member))
            model |= dict.fromkeys(range(first, last + 1), (attempt, member))
            continue
        pieces = settled(deliveries, first, last, member)
        delivered = [(at, count) for start, end, count in pieces for at in range(start, end + 1)]
        known = [model.pop(at, (None, member)) for at in range(first, last + 1)]
        expected = [count if owner == member else None for count, owner in known]
        assert delivered == list(zip(range(first, last + 1), expected, strict=True))
