"""State in memory that is written to its topic again, in appends that are not too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from kafka_share_proxy.durable import restored_state
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.small_state import TEST_STATE, HeldTexts, partition_of


class Journal:
    """Confirms or refuses appends."""

    state = TEST_STATE

    def __init__(self) -> None:
        self.appends: list[tuple[int, list[tuple[str, bytes]]]] = []
        self.refuses = False

    def restore(self, partition: int, records: Sequence[tuple[str, bytes]]) -> Promise[None]:
        promise: Promise[None] = Promise()
        self.appends.append((partition, list(records)))
        if self.refuses:
            promise.fail(JournalRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            promise.set(None)
        return promise


def held(count: int, size: int = 1) -> HeldTexts:
    texts = HeldTexts()
    texts.values = {f"k{number}": "v" * size for number in range(count)}
    return texts


async def write(journal: Journal, texts: HeldTexts, partitions: set[int]) -> None:
    with trio.fail_after(5):
        await restored_state.write(journal, texts, partitions)  # type: ignore[arg-type]


async def test_everything_is_appended_once_to_its_partition() -> None:
    journal, texts = Journal(), held(2000)
    await write(journal, texts, set(TEST_STATE.all))
    appended = [(key, value.decode()) for _, records in journal.appends for key, value in records]
    assert sorted(appended) == sorted(texts.values.items())
    assert all(partition_of(key) == partition for partition, records in journal.appends for key, _ in records)
    assert max(len(records) for _, records in journal.appends) == restored_state.RECORDS_MAX


async def test_only_the_requested_partitions_are_written() -> None:
    journal = Journal()
    await write(journal, held(100), {3})
    assert {partition for partition, _ in journal.appends} == {3}


async def test_large_values_make_small_appends() -> None:
    journal = Journal()
    await write(journal, held(100, restored_state.BYTES_MIN // 2), {3, 4})
    assert {len(records) for _, records in journal.appends} <= {1, 2}


async def test_partitions_that_are_given_up_meanwhile_are_left_out() -> None:
    """The journal has no producer for them any longer."""
    journal, partitions = Journal(), set(TEST_STATE.all)
    restore = journal.restore

    def give_up_others(partition: int, records: Sequence[tuple[str, bytes]]) -> Promise[None]:
        assert partition in partitions
        partitions.intersection_update({partition})
        return restore(partition, records)

    journal.restore = give_up_others  # type: ignore[method-assign]
    await write(journal, held(2000), partitions)
    assert {partition for partition, _ in journal.appends} == partitions


async def test_append_that_is_refused_ends_it() -> None:
    journal: Any = Journal()
    journal.refuses = True
    with pytest.raises(JournalRefused):
        await write(journal, held(1), {partition_of("k0")})
