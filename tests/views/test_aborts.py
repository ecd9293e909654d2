"""Aborted transactions are resolved as a consumer would do it."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

import pytest

from proxy.errors import ErrorCode
from proxy.views.aborts import AbortResolver
from proxy.views.slicing import CorruptBatch
from proxy.wire import records
from proxy.wire.records import Record

ABORT, COMMIT = 0, 1


class Aborted(NamedTuple):
    """As an answer names it."""

    producer_id: int
    first_offset: int


def data(offset: int, producer_id: int, *, transactional: bool = True, count: int = 1) -> bytes:
    """A batch of records."""
    found = [Record(b"k", b"%d" % producer_id) for _ in range(count)]
    return records.build_batch(offset, found, producer_id=producer_id, is_transactional=transactional)


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    """The end of a transaction."""
    record = Record(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return records.build_batch(offset, [record], producer_id=producer_id, is_transactional=True, is_control=True)


def kept(log: list[bytes], aborted: list[Aborted] | None) -> list[int]:
    """Base offsets of what is kept."""
    answer = memoryview(b"".join(log))
    resolver = AbortResolver(aborted)
    headers = list(records.iter_batches(answer))
    return [h.base_offset for h in headers if resolver.keep(h, answer[h.position : h.end])]


def test_records_of_aborted_transactions_and_markers_go() -> None:
    """What was committed, and what belongs to no transaction, stays."""
    log = [
        data(0, 1),
        data(1, 2),
        data(2, 1, transactional=False),
        marker(3, 1, ABORT),
        marker(4, 2, COMMIT),
        data(5, 1),
        marker(6, 1, COMMIT),
    ]
    assert kept(log, [Aborted(1, 0)]) == [1, 2, 5]


def test_a_producer_that_aborts_twice_may_commit_in_between() -> None:
    """The list is taken by first offset, whatever its order."""
    log = [data(0, 1), marker(1, 1, ABORT), data(2, 1), marker(3, 1, COMMIT), data(4, 1, count=2), marker(6, 1, ABORT)]
    assert kept(log, [Aborted(1, 4), Aborted(1, 0)]) == [2]


def test_an_answer_may_begin_within_an_aborted_transaction() -> None:
    """The transaction's first offset lies before the first batch."""
    assert kept([data(50, 1), marker(51, 1, ABORT), data(52, 1)], [Aborted(1, 7)]) == [52]


@pytest.mark.parametrize("aborted", [None, []])
def test_nothing_was_aborted(aborted: list[Aborted] | None) -> None:
    """Then only markers go."""
    assert kept([data(0, 1), marker(1, 1, COMMIT)], aborted) == [0]


def test_an_emptied_marker_ends_nothing() -> None:
    """Compaction leaves a control batch without its record; Kafka's consumer goes on skipping, too."""
    empty = records.build_batch(1, [], producer_id=1, is_transactional=True, is_control=True, last_offset=1)
    assert kept([data(0, 1), empty, data(2, 1), marker(3, 1, ABORT), data(4, 1)], [Aborted(1, 0)]) == [4]


def test_a_marker_that_cannot_be_read_is_an_error() -> None:
    """Who cannot tell an abort from a commit must not go on."""
    broken = bytearray(marker(0, 1, ABORT))
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch) as caught:
        kept([bytes(broken)], [Aborted(1, 0)])
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("seed", range(20))
def test_interleaved_transactions_against_a_plain_account(seed: int) -> None:
    """A random log of many producers keeps exactly the batches whose transaction was committed."""
    dice = random.Random(seed)
    log: list[bytes] = []
    open_since: dict[int, list[int]] = {}
    aborted, expected = [], set()
    for offset in range(200):
        producer_id = dice.randrange(6)
        mine = open_since.get(producer_id)
        if mine and dice.random() < 0.3:
            kind = dice.choice([ABORT, COMMIT])
            log.append(marker(offset, producer_id, kind))
            if kind == ABORT:
                aborted.append(Aborted(producer_id, mine[0]))
            else:
                expected.update(mine)
            del open_since[producer_id]
        elif not mine and dice.random() < 0.2:
            log.append(data(offset, producer_id, transactional=False))
            expected.add(offset)
        else:
            log.append(data(offset, producer_id))
            open_since.setdefault(producer_id, []).append(offset)
    stable = min((mine[0] for mine in open_since.values()), default=200)
    dice.shuffle(aborted)
    assert kept(log[:stable], aborted) == sorted(offset for offset in expected if offset < stable)
