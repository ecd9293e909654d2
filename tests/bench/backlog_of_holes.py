"""Measure the records that are processed again after kill -9, with many holes: `python -m
tests.bench.backlog_of_holes`; about 2 minutes.

100,000 records of one partition are finished out of order, and one in 18 is not finished at all, so that ranges of done
offsets would take 64 KiB as text. The consumer is killed with -9 between two commits, and a second one of its group
continues. Counted is what the second one processed although the first one had finished it.

- *ranges*: each commit says which offsets were finished since the last one (`ic/1;...`), and the proxy keeps them all.
  OffsetFetch shows at most the length of a string in Kafka's protocol; the second consumer sends the request again when
  it has reached the end of it.
- *metadata*: each commit contains everything that is done above its offset in the broker's metadata, as Parallel
  Consumer does: run lengths or one bit for each offset, compressed or not, in base64, the shortest of these; nothing
  if that has more than 4,096 characters. Its back-pressure, which stops reading before that, is not tried here.

The exit status is 1 when ranges did not come out better.
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from confluent_kafka import Consumer, TopicPartition
from kafka_share_proxy.offsets.commit_text import parse_commit_text, write_commit_text
from kafka_share_proxy.offsets.ranges import OffsetRanges
from rich.console import Console
from rich.table import Table

from tests.support.brokers import NEW, OLD, Running
from tests.support.raw import Raw, until

RECORDS = 100_000
HOLES = frozenset(random.Random(18).sample(range(RECORDS), RECORDS // 18))
"""About 5,500 holes: "12345-12361," has 12 characters, so ranges between them have 64 KiB. Where they are is by chance:
what is regular is compressed to nothing."""
AT_ONCE = 5_000
"""Records that are finished in any order; their neighbours come before or after all of them."""
COMMIT_EVERY = 250
KILLED_AT = 0.999
"""Share of the records that the first consumer is to finish."""
METADATA_MAX = 4096
SHOWN_MAX = 32_000
"""A text that is longer may not be all there is."""
CHECKOUT = Path(__file__).resolve().parents[2]


class Remembers(Protocol):
    """How a consumer says what is done, and learns what was."""

    done: OffsetRanges
    """Ranges known to be done."""

    def metadata(self, new: OffsetRanges) -> tuple[int, str]:
        """Offset and metadata of a commit, after these were finished since the last one."""

    def learn(self, offset: int, metadata: str) -> None:
        """Read the committed state."""

    def is_all(self, offset: int) -> bool:
        """True if it is known whether this offset is done."""


class Ranges:
    """Individual commits."""

    def __init__(self) -> None:
        self.done = OffsetRanges()
        self._committed = 0
        self._known_to = sys.maxsize

    def metadata(self, new: OffsetRanges) -> tuple[int, str]:
        """See Remembers."""
        return self._committed, write_commit_text(new)

    def learn(self, offset: int, metadata: str) -> None:
        """See Remembers."""
        text = parse_commit_text(metadata) if metadata else None
        self._committed, self.done = max(offset, 0), OffsetRanges() if text is None else text.ranges
        if self._committed:
            self.done.merge(0, self._committed)
        self._known_to = sys.maxsize if len(metadata) < SHOWN_MAX else self.done.end

    def is_all(self, offset: int) -> bool:
        """See Remembers."""
        return offset < self._known_to


class Metadata:
    """All that is done after the committed offset, in the metadata of the broker."""

    def __init__(self) -> None:
        self.done = OffsetRanges()

    def metadata(self, new: OffsetRanges) -> tuple[int, str]:
        """See Remembers."""
        committed = self.done.absorbing(0)[0]
        texts = [base64.b64encode(each).decode() for each in _encodings(self.done, committed)]
        text = min(texts, key=len)
        return committed, text if len(text) <= METADATA_MAX else ""

    def learn(self, offset: int, metadata: str) -> None:
        """See Remembers."""
        self.done = OffsetRanges([(0, offset)] if offset > 0 else [])
        for start, end in _decoded(base64.b64decode(metadata), max(offset, 0)) if metadata else ():
            self.done.merge(start, end)

    def is_all(self, offset: int) -> bool:
        """See Remembers."""
        return True


RUNS, BITS = b"R", b"B"


def _encodings(done: OffsetRanges, committed: int) -> Iterator[bytes]:
    runs, flags, at = bytearray(), bytearray(b"0" * max(done.end - committed, 0)), committed
    for start, end in done:
        if end <= committed:
            continue
        for length in (start - at, end - start):
            while length > 127:
                runs.append(length & 127 | 128)
                length >>= 7
            runs.append(length)
        flags[start - committed : end - committed] = b"1" * (end - start)
        at = end
    bits = int(flags or b"0", 2).to_bytes((len(flags) + 7) // 8 or 1, "big")
    for kind, data in ((RUNS, bytes(runs)), (BITS, len(flags).to_bytes(4, "big") + bits)):
        yield kind + data
        yield kind.lower() + zlib.compress(data, 9)


def _decoded(data: bytes, committed: int) -> Iterator[tuple[int, int]]:
    kind, rest = data[:1], data[1:] if data[:1].isupper() else zlib.decompress(data[1:])
    if kind.upper() == BITS:
        count = int.from_bytes(rest[:4], "big")
        for index, flag in enumerate(f"{int.from_bytes(rest[4:], 'big'):0{count}b}"):
            if flag == "1":
                yield committed + index, committed + index + 1
        return
    lengths, length, shift = list[int](), 0, 0
    for byte in rest:
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            lengths.append(length)
            length = shift = 0
    for gap, run in zip(lengths[::2], lengths[1::2], strict=True):
        yield committed + gap, committed + gap + run
        committed += gap + run


WAYS: dict[str, Callable[[], Remembers]] = {"ranges": Ranges, "metadata": Metadata}


# A consumer, in a separate process


class Worker:
    """Processes records, and prints the offset of each that it has finished."""

    def __init__(self, way: str, bootstrap: str, topic: str, group: str) -> None:
        self._remembers = WAYS[way]()
        self._topic = topic
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "session.timeout.ms": 6000, **settings})
        self._consumer.subscribe([topic], on_assign=lambda _, __: self._learn())
        self._new = OffsetRanges()
        self._count = 0

    def _learn(self) -> None:
        (committed,) = self._consumer.committed([TopicPartition(self._topic, 0)], 30)
        self._remembers.learn(committed.offset, committed.metadata or "")

    def offsets(self) -> Iterator[int]:
        """Return the offsets of all records from the committed offset to the end of the partition."""
        position = 0
        while position < RECORDS:
            for message in self._consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                offset = message.offset()
                assert offset is not None
                position = offset + 1
                yield offset

    def finish(self, offset: int) -> None:
        """The record is processed."""
        os.write(1, b"%d\n" % offset)
        self._new.merge(offset, offset + 1)
        self._remembers.done.merge(offset, offset + 1)
        self._count += 1
        if self._count % COMMIT_EVERY == 0:
            self.commit()

    def commit(self) -> None:
        """Commit the finished records."""
        offset, metadata = self._remembers.metadata(self._new)
        self._consumer.commit(offsets=[TopicPartition(self._topic, 0, offset, metadata)], asynchronous=False)
        self._new = OffsetRanges()

    def out_of_order(self) -> None:
        """Finish all but the holes, some at a time in any order; then wait for the end."""
        offsets = list(self.offsets())
        chance = random.Random(RECORDS)
        for begin in range(0, len(offsets), AT_ONCE):
            some = [offset for offset in offsets[begin : begin + AT_ONCE] if not is_hole(offset)]
            chance.shuffle(some)
            for offset in some:
                self.finish(offset)
        time.sleep(600)

    def go_on(self) -> None:
        """Process all records not known to be done."""
        for offset in self.offsets():
            if not self._remembers.is_all(offset):
                self.commit()
                self._learn()
            if offset not in self._remembers.done:
                self.finish(offset)
        self.commit()
        self._consumer.close()


def is_hole(offset: int) -> bool:
    """True if the first consumer does not get done with it."""
    return offset in HOLES


# Both ways


class Outcome(NamedTuple):
    """Outcome of one method."""

    finished: int
    """Before the kill."""
    again: int
    """Number of these that are processed again."""
    seconds: float
    """Seconds that the first consumer took."""


def run(way: str, bootstrap: str, topic: str, folder: Path) -> Outcome:
    """A consumer that is killed, and one that continues."""
    logs = [folder / f"{way}-{name}" for name in ("first", "second")]
    command = [sys.executable, "-m", "tests.bench.backlog_of_holes", "--worker", way, bootstrap, topic, f"{way}-group"]
    enough = KILLED_AT * sum(not is_hole(offset) for offset in range(RECORDS))
    began = time.monotonic()
    with logs[0].open("wb") as log, subprocess.Popen([*command, "first"], stdout=log, cwd=CHECKOUT) as first:
        try:
            until(lambda: first.poll() is not None or len(offsets_in(logs[0])) >= enough, "the backlog", 300, 0.3)
        finally:
            first.kill()
    seconds = time.monotonic() - began
    with logs[1].open("wb") as log:
        subprocess.run([*command, "second"], stdout=log, cwd=CHECKOUT, check=True, timeout=300)
    finished, after = offsets_in(logs[0]), offsets_in(logs[1])
    assert len(finished | after) == RECORDS, "every record is processed"
    return Outcome(len(finished), len(finished & after), seconds)


def offsets_in(log: Path) -> set[int]:
    """Return what was finished; a last line that is cut off does not count."""
    return set(map(int, log.read_bytes().split(b"\n")[:-1]))


def main() -> int:
    """Both ways in front of one broker; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--release", choices=[OLD, NEW], default=NEW)
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        *place, which = options.worker
        worker = Worker(*place)
        worker.out_of_order() if which == "first" else worker.go_on()
        return 0
    table = Table("", "finished", "processed again", "seconds to finish", title=f"Kafka {options.release}, kill -9")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        running = Running(Path(name))
        try:
            cluster = running.cluster(options.release)
            front = running.front(cluster.bootstrap)
            until(lambda: front.send_request("/readyz/commits")[0], "ranges to be loaded")
            with Raw(cluster.bootstrap) as raw:
                topic = raw.create_topic("records")
                for _ in range(0, RECORDS, 1000):
                    raw.produce(topic, 1000)
            ways = {"ranges": front.bootstrap, "metadata": cluster.bootstrap}
            outcomes = {way: run(way, bootstrap, topic.name, Path(name)) for way, bootstrap in ways.items()}
        finally:
            running.close()
    for way, outcome in outcomes.items():
        table.add_row(way, f"{outcome.finished:,}", f"{outcome.again:,}", f"{outcome.seconds:.1f}")
    Console(width=100).print(table)
    return 0 if outcomes["ranges"].again < outcomes["metadata"].again else 1


if __name__ == "__main__":
    sys.exit(main())
