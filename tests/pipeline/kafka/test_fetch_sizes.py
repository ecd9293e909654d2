"""Sizes of Fetch requests (pipeline/README.md rule 10)."""

from __future__ import annotations

from kafka_share_proxy.pipeline.kafka.fetch_sizes import BATCH_BYTES, REMEMBERED_MAX, FetchSizes

MOST = 1 << 20


def test_nothing_is_known_before_a_response() -> None:
    sizes = FetchSizes()
    assert sizes.request_bytes("a", 1_000_000, MOST) == MOST
    assert sizes.request_bytes("a", 200, MOST) == 200 << 10
    assert sizes.request_bytes("a", 1, MOST) == 64 << 10


def test_the_requested_size_depends_on_the_last_response() -> None:
    sizes = FetchSizes()
    sizes.learn("a", 1_000, 10_000)
    assert sizes.request_bytes("a", 500, MOST) == BATCH_BYTES + 5_100
    assert sizes.request_bytes("a", 10_000_000, MOST) == MOST
    assert sizes.request_bytes("b", 1_000_000, MOST) == MOST
    sizes.learn("a", 0, 0)  # a response that did not get on
    sizes.learn("a", 1_000, 0)  # a range of keys that has none there
    assert sizes.request_bytes("a", 500, MOST) == BATCH_BYTES


def test_remembered_splits_are_bounded() -> None:
    sizes = FetchSizes()
    for number in range(REMEMBERED_MAX + 1):
        sizes.learn(number, 1, 1)
    assert sizes.request_bytes(0, 1_000_000, MOST) == MOST
    assert sizes.request_bytes(REMEMBERED_MAX, 1_000_000, MOST) == min(MOST, BATCH_BYTES + 1_020_000)
