"""Records that stay where they were read: what the owner of a group knows of them, and what the edge keeps.

Theory of operation. The edge of a client asks the broker for records when the owner wants it to. What comes it keeps
(`HeldRecords`), and the Fetch answer goes on with the batch headers and a name for the bytes in place of the records.
To the owner that is a chunk of its cache like any other, except that its bytes are `FarRecords`: a slice of them is a
reference, which the edge of the same client turns into bytes again. A chunk serves only members that came through the
edge that has it. The edge lets go of what the owner does not refer to any more; should it have had to before, the
answer cannot be given, and the member's session ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeAlias

from proxy.brokers.connection_slots import HasSlots, OptionalSlot
from proxy.wire import messages, registry
from proxy.wire.batches import BatchTable, split_complete
from proxy.wire.primitives import Buffer

VERSION = 0


class FarSlice:
    """Some whole batches that another proxy has."""

    __slots__ = ("_chunk", "_end", "_start")

    def __init__(self, chunk: int, start: int, end: int) -> None:
        self._chunk, self._start, self._end = chunk, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def reference(self) -> bytes:
        """What stands for them in an answer."""
        message = messages.PeerRecords(chunk=self._chunk, start=self._start, end=self._end)
        return registry.codec_of(messages.PeerRecords, VERSION).encode(message)


class FarRecords:
    """The bytes of one chunk, at another proxy."""

    __slots__ = ("_chunk", "_forget", "_size")

    def __init__(self, chunk: int, size: int, forget: Callable[[int], None]) -> None:
        self._chunk, self._size, self._forget = chunk, size, forget

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> FarSlice:
        return FarSlice(self._chunk, part.start, part.stop)

    def forget(self) -> None:
        """Nobody will refer to them any more."""
        self._forget(self._chunk)


Records = memoryview | FarRecords
RecordsSlice = memoryview | bytes | FarSlice


def on_the_wire(part: RecordsSlice) -> memoryview | bytes:
    """What an answer has for these records."""
    return part.reference() if isinstance(part, FarSlice) else part


class Elsewhere:
    """What is remembered of a connection whose client is at another proxy: who keeps the records it reads."""

    def __init__(self, holder: int, forget: Callable[[int], None]) -> None:
        self.holder = holder
        """Names the link; never 0."""
        self._forget = forget

    def batches(self, data: Buffer, fetch_offset: int) -> tuple[BatchTable, FarRecords]:
        """What stands in the Fetch answer for records; see `taken_in`."""
        told = registry.codec_of(messages.PeerBatches, VERSION).decode(data)
        batches = BatchTable(bytes(told.rows)).widened(fetch_offset)
        return batches, FarRecords(told.chunk, batches[-1].end if batches else 0, self._forget)


ELSEWHERE = OptionalSlot[Elsewhere]()
"""Put for connections whose client is at another proxy."""


def holder_of(connection: HasSlots) -> int:
    """Which proxy keeps what this connection reads; 0: this one."""
    elsewhere = ELSEWHERE.of(connection)
    return 0 if elsewhere is None else elsewhere.holder


def taken_in(connection: HasSlots, data: Buffer, fetch_offset: int, copied_below: int) -> tuple[BatchTable, Records]:
    """The whole batches of what a Fetch answer has for records, and their bytes. Raises RemoteProtocolError.

    `fetch_offset`: where they were asked for (`batches.split_complete`).
    Fewer bytes than `copied_below` are copied, so that they do not keep the whole answer in memory.
    """
    elsewhere = ELSEWHERE.of(connection)
    if elsewhere is not None and len(data):
        return elsewhere.batches(data, fetch_offset)
    batches, size = split_complete(memoryview(data), fetch_offset)
    return batches, _by_itself(memoryview(data)[:size], copied_below)


def _by_itself(data: memoryview, copied_below: int) -> memoryview:
    return memoryview(bytes(data)) if len(data) < copied_below else data


Seen: TypeAlias = "Callable[[messages.FetchResponse.FetchableTopicResponse, int, BatchTable, memoryview], None]"
"""Topic, partition, its whole batches and their bytes."""


class HeldRecords:
    """The edge's side: bytes of Fetch answers that owners refer to, bounded; the oldest goes first."""

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        self._limit_bytes = limit_bytes
        self._chunks: OrderedDict[int, memoryview] = OrderedDict()
        self._names = count(1)

    def hold(self, answer: messages.FetchResponse, copied_below: int, seen: Seen | None = None) -> None:
        """Keep the records of a decoded Fetch answer; what stands for them takes their place there.

        `copied_below` as in `taken_in`. `seen`: shown the bytes of each partition on the way.
        """
        for topic in answer.responses or ():
            for partition in topic.partitions or ():
                if partition.records is not None and len(partition.records):
                    data = memoryview(partition.records)
                    batches, size = split_complete(data)
                    if seen is not None and batches:
                        seen(topic, partition.partition_index, batches, data)
                    partition.records = self._hold(batches, data[:size], copied_below)

    def _hold(self, batches: BatchTable, data: memoryview, copied_below: int) -> bytes:
        if not batches:
            return b""
        name = next(self._names)
        self._chunks[name] = kept = _by_itself(data, copied_below)
        self.bytes += len(kept)
        while self.bytes > self._limit_bytes and len(self._chunks) > 1:
            self.bytes -= len(self._chunks.popitem(last=False)[1])
        message = messages.PeerBatches(chunk=name, rows=batches.rows)
        return registry.codec_of(messages.PeerBatches, VERSION).encode(message)

    def records_of(self, reference: Buffer) -> memoryview | None:
        """The bytes that a reference means; None when they are not here any more. Raises RemoteProtocolError."""
        told = registry.codec_of(messages.PeerRecords, VERSION).decode(reference)
        chunk = self._chunks.get(told.chunk)
        return None if chunk is None else chunk[told.start : told.end]

    def forget(self, names: Iterable[int]) -> None:
        """Nobody will refer to these any more."""
        for name in names:
            self.bytes -= len(self._chunks.pop(name, b""))
