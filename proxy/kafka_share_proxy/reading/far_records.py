"""Records that stay at the proxy that read them: the references of a group's owner, and the bytes at the edge.

Rule: fleet/README.md 8. The edge keeps the received records (`HeldRecords`). The owner's chunk has `FarRecords` in
their place: a slice of them is a reference, which the edge replaces by the bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TypeAlias

from kafka_share_proxy.brokers.connection_slots import OptionalSlot
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.records import order_keys
from kafka_share_proxy.wire.records.batches import BatchTable, split_complete
from kafka_share_proxy.wire.records.order_keys import RecordKeys

VERSION = 0
"""Version of the messages between proxies."""


class FarSlice:
    """Some whole batches that another proxy holds."""

    __slots__ = ("_chunk", "_end", "_start")

    def __init__(self, chunk: int, start: int, end: int) -> None:
        self._chunk, self._start, self._end = chunk, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def reference(self) -> bytes:
        """Encode the slice for the proxy that holds the bytes."""
        message = messages.PeerRecords(chunk=self._chunk, start=self._start, end=self._end)
        return registry.codec_of(messages.PeerRecords, VERSION).encode(message)


class FarRecords:
    """Bytes of one chunk, held by another proxy."""

    __slots__ = ("_chunk", "_forget", "_size", "keys")

    def __init__(self, chunk: int, size: int, forget: Callable[[int], None], keys: RecordKeys | None = None) -> None:
        """`keys`: hashes of the records' keys. None if not requested, or from an earlier version of the proxy."""
        self._chunk, self._size, self._forget, self.keys = chunk, size, forget, keys

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> FarSlice:
        return FarSlice(self._chunk, part.start, part.stop)

    def forget(self) -> None:
        """Let the other proxy release the bytes."""
        self._forget(self._chunk)


Records = memoryview | FarRecords
RecordsSlice = memoryview | bytes | FarSlice


def encoded_slice(part: RecordsSlice) -> memoryview | bytes:
    """Return the bytes, or the reference to them, as they are sent to the proxy of the client."""
    return part.reference() if isinstance(part, FarSlice) else part


class Elsewhere:
    """Proxy to which a client is connected, and which holds the records read on its connection."""

    def __init__(self, holder: int, forget: Callable[[int], None]) -> None:
        self.holder = holder
        """Id of the proxy, never 0."""
        self._forget = forget

    def batches(self, data: Buffer, fetch_offset: int) -> tuple[BatchTable, FarRecords]:
        """Return the batches in the records field of a Fetch response. Raises RemoteProtocolError."""
        decoded = registry.codec_of(messages.PeerBatches, VERSION).decode(data)
        batches = BatchTable(bytes(decoded.rows)).widened(fetch_offset)
        keys = None
        if decoded.key_offsets is not None and decoded.key_hashes is not None:
            keys = order_keys.from_little_endian(bytes(decoded.key_offsets), bytes(decoded.key_hashes))
        return batches, FarRecords(decoded.chunk, batches[-1].end if batches else 0, self._forget, keys)


ELSEWHERE = OptionalSlot[Elsewhere]()
"""Place of the records of a connection. None if its client is connected to this proxy."""


def holder_of(connection: Connection) -> int:
    """Return the id of the proxy that holds records read on a connection, 0 for this one."""
    return 0 if (elsewhere := ELSEWHERE.of(connection)) is None else elsewhere.holder


def copied_if_small(data: memoryview, copied_below: int) -> memoryview:
    """Return a copy of fewer bytes than `copied_below`, so that they do not keep a whole response in memory."""
    return memoryview(bytes(data)) if len(data) < copied_below else data


Keys: TypeAlias = "Mapping[int, RecordKeys]"
"""Keys of the records of a partition, by the id of its entry in the response."""
RecordObserver: TypeAlias = (
    "Callable[[messages.FetchResponse.FetchableTopicResponse, int, BatchTable, memoryview], None]"
)


class HeldRecords:
    """Bytes of Fetch responses that owners refer to. The oldest beyond the limit are evicted."""

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        self._limit_bytes = limit_bytes
        self._chunks: OrderedDict[int, memoryview] = OrderedDict()
        self._names = count(1)
        """Source of the numbers of chunks."""

    def hold(
        self,
        response: messages.FetchResponse,
        copied_below: int,
        observe: RecordObserver | None = None,
        keys: Keys | None = None,
    ) -> None:
        """Keep the records of a decoded Fetch response, and replace them by references.

        `copied_below` as in `copied_if_small`. `observe` is called with the bytes of each partition. `keys` are sent
        with the references.
        """
        for topic in response.responses or ():
            for partition in topic.partitions or ():
                if partition.records is not None and len(partition.records):
                    data = memoryview(partition.records)
                    batches, size = split_complete(data)
                    if observe is not None and batches:
                        observe(topic, partition.partition_index, batches, data)
                    partition_keys = None if keys is None else keys.get(id(partition))
                    partition.records = self._hold(batches, data[:size], copied_below, partition_keys)

    def _hold(self, batches: BatchTable, data: memoryview, copied_below: int, keys: RecordKeys | None) -> bytes:
        if not batches:
            return b""
        name = next(self._names)
        self._chunks[name] = chunk = copied_if_small(data, copied_below)
        self.bytes += len(chunk)
        while self.bytes > self._limit_bytes and len(self._chunks) > 1:
            self.bytes -= len(self._chunks.popitem(last=False)[1])
        message = messages.PeerBatches(chunk=name, rows=batches.rows)
        if keys is not None:
            message.key_offsets, message.key_hashes = order_keys.little_endian(keys)
        return registry.codec_of(messages.PeerBatches, VERSION).encode(message)

    def records_of(self, reference: Buffer) -> memoryview | None:
        """Return the records, or None if their bytes were released. Raises RemoteProtocolError."""
        decoded = registry.codec_of(messages.PeerRecords, VERSION).decode(reference)
        chunk = self._chunks.get(decoded.chunk)
        return None if chunk is None else chunk[decoded.start : decoded.end]

    def forget(self, names: Iterable[int]) -> None:
        """Release the bytes of chunks."""
        for name in names:
            self.bytes -= len(self._chunks.pop(name, b""))
