"""Tables of the share-group semantics, reproduced exactly: poison-batch throttling, log starts that move, isolation,
and logs with holes.
"""

from __future__ import annotations

import time

from kafka_share_proxy.wire.records import records

from tests.oracle.items import item
from tests.oracle.items_deliveries import deliveries, release_everything, wait_for_lag
from tests.oracle.items_work import ABORTED, COMMITTED, transact
from tests.support.raw import BROKER_RESOURCE, TOPIC_RESOURCE, Topic, until, values_of
from tests.support.worlds import ACCEPT, GAP, RELEASE, World


def throttled(size: int, limit: int) -> list[list[tuple[int, int, int]]]:
    """The spans (first, last, delivery count) of each poll of one batch that is always released.

    The rule is sharegroups/README.md rule 38.
    """
    counts: list[int] = [0] * size
    threshold, polls = max(2, -(-limit // 2)), []
    while (first := next((offset for offset, count in enumerate(counts) if count < limit), size)) < size:
        most = 1 if counts[first] == limit - 1 else size
        if counts[first] >= threshold:
            most = min(most, max(1, size >> (counts[first] - threshold + 1)))
        spans: list[tuple[int, int, int]] = []
        for offset in range(first, min(first + most, size)):
            if spans and counts[offset] == limit - 1:
                break  # its last delivery is separate
            counts[offset] += 1
            if spans and spans[-1][2] == counts[offset]:
                spans[-1] = (spans[-1][0], offset, counts[offset])
            else:
                spans.append((offset, offset, counts[offset]))
        polls.append(spans)
    return polls


def _all_of_a_table(w: World, size: int, begin: list[int]) -> None:
    t = w.topic()
    w.raw.produce(t, size)
    a = w.member(w.group(deliveries="10"), topics=[t])
    acquired_ranges = w.note("deliveries", release_everything(a, t))
    assert [got[-1][1] - got[0][0] + 1 for got in acquired_ranges[: len(begin)]] == begin
    assert [[tuple(span) for span in got] for got in acquired_ranges] == throttled(size, 10)
    assert set(deliveries(acquired_ranges).values()) == {10}


@item(129, "b")
def limit_of_ten_and_512(w: World) -> None:
    """The whole binary descent of a batch of 512 with a limit of ten."""
    _all_of_a_table(w, 512, [512] * 5 + [256, 128, 64, 32, 1])


@item(129, "c")
def limit_of_ten_and_500(w: World) -> None:
    """The same where the halves are not even."""
    _all_of_a_table(w, 500, [500] * 5 + [250, 125, 62, 31, 1])


@item(39, "b")
def held_below_the_log_start(w: World) -> None:
    """Acknowledgements of held records that were deleted are ignored without an error; of a span across the new start
    the rest holds.
    """
    t = w.topic()
    w.raw.produce(t, 10, 10)
    a = w.member(w.group(), topics=[t])
    assert a.take(t, records=10, batch=10).acquired(t) == [(0, 9, 1)]
    a.acknowledge((t, 0, 0, 2, RELEASE))
    w.raw.delete_records(t, 7)
    time.sleep(2.5)  # the proxy keeps batches it has just read for two seconds
    b = w.member(a.group, "B", topics=[t])
    assert b.take(t).acquired(t) == [(10, 19, 1)]
    assert a.acknowledge((t, 0, 3, 5, ACCEPT)).code(t) == 0
    assert a.acknowledge((t, 0, 6, 8, ACCEPT)).code(t) == 0
    wait_for_lag(w, a.group, t, 11)
    a.acknowledge((t, 0, 9, 9, RELEASE))
    assert a.take(t).acquired(t) == [(9, 9, 2)]
    a.acknowledge((t, 0, 9, 9, ACCEPT))
    b.acknowledge((t, 0, 10, 19, ACCEPT))
    wait_for_lag(w, a.group, t, 0)


@item(39, "c")
def locks_that_end_below_the_log_start(w: World) -> None:
    """Of the records held when the log start passed them only existing ones are delivered again."""
    t = w.topic()
    w.raw.produce(t, 10)
    a = w.member(w.group(lock_ms="3000"), topics=[t])
    assert a.take(t).acquired(t) == [(0, 9, 1)]
    w.raw.delete_records(t, 5)
    time.sleep(3.5)
    got = w.member(a.group, "B", topics=[t]).take_all(5, t)
    assert got["t", 0] == [(5, 9, 2)]


@item(113, "b")
def aborted_records_are_cut_out(w: World) -> None:
    """Under read_committed aborted records are in no acquired span; markers are, and are settled as gaps."""
    t = w.topic()
    g = w.group(isolation="read_committed")
    a = w.member(g, topics=[t])
    transact(w, t, (2, COMMITTED), (3, ABORTED), (2, COMMITTED))
    w.raw.produce(t, 1)
    spans_taken = a.take_all(8, t)["t", 0]
    spans = [offset for first, last, _ in spans_taken for offset in range(first, last + 1)]
    assert spans == [0, 1, 2, 6, 7, 8, 9, 10]
    a.acknowledge((t, 0, 0, 2, [ACCEPT, ACCEPT, GAP]), (t, 0, 6, 10, [GAP, ACCEPT, ACCEPT, GAP, ACCEPT]))
    wait_for_lag(w, g, t, 0)


def _compacted(w: World, t: Topic) -> list[tuple[int, int, int]]:
    """The batches of a log's first segment, as (first offset, last offset, records)."""
    return [
        (batch.base_offset, batch.last_offset, batch.records_count)
        for batch in records.iter_batches(memoryview(w.raw.read(t)))
    ]


@item(135)
def holes_of_a_compacted_log(w: World) -> None:
    """Offsets that a log cleaner took away are acquired like others, acknowledged as gaps, and passed."""
    w.raw.try_configure(BROKER_RESOURCE, "", {"log.cleaner.backoff.ms": "100"})
    t = w.topic(configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"})
    for keys in ("abcde", "b", "q", "cxyz", "q", "y"):
        w.raw.append(t, records.build_batch(0, [_keyed(key) for key in keys]))
    w.raw.try_configure(TOPIC_RESOURCE, t.name, {"segment.ms": "1"})
    until(lambda: w.raw.describe(TOPIC_RESOURCE, t.name)["segment.ms"] == "1", "segments that end at once")
    w.raw.append(t, records.build_batch(0, [_keyed("last")]))
    left = [(0, 4, 3), (5, 5, 1), (7, 10, 3), (11, 11, 1), (12, 12, 1)]
    until(lambda: _compacted(w, t) == left, "the log cleaner")
    g = w.group()
    a = w.member(g, topics=[t])
    a.take_all(14, t)
    there = {13, *(offset for offset, _ in values_of(w.raw.read(t)))}
    assert not {1, 2} & there
    assert a.acknowledge((t, 0, 0, 13, [ACCEPT if offset in there else GAP for offset in range(14)])).code(t) == 0
    wait_for_lag(w, g, t, 0)
    w.raw.try_configure(BROKER_RESOURCE, "", {"log.cleaner.backoff.ms": None})


def _keyed(key: str) -> records.Record:
    return records.Record(key=key.encode(), value=b"v", timestamp=int(time.time() * 1000))
