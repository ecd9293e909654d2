"""Lower bound of the cost of individual commits, with a proxy without overhead, for the bench of individual commits.

Clients send plain OffsetCommits; the appends of individual commits are sent in one Produce for all waiting commits, one
at a time, and a client continues when the append of its commit is confirmed. Requests are made before and record
batches once, so next to nothing but sockets and the broker is left.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from collections.abc import Sequence
from functools import lru_cache

from kafka_share_proxy.commits.state_records import RangeKey, RangeValue, encode_key, range_value
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.records.records import Record, build_batch

from tests.support.raw import Raw, Topic

PRODUCE, PRODUCE_VERSION = 0, 9
RESPONSE_MAX = 1 << 16


def records_of(group: str, topic: str) -> list[Record]:
    """Return the records that one commit appends when it extends a range: the new range, and a tombstone of the old
    one.
    """
    value = range_value(RangeValue(bytes(16), -1, 0, 0, ""))
    before, now = (encode_key(RangeKey(group, topic, 0, 9, last)) for last in (1000, 1001))
    return [Record(now, value, timestamp=0), Record(before, None, timestamp=0)]


class Appends:
    """Shared appends to a topic with as many partitions as the one of ranges, over one connection."""

    def __init__(self, raw: Raw, to: Topic, groups: Sequence[str], committed: str) -> None:
        self.socket = raw.connect(raw.node(to.leaders[0]))._socket
        self.sent = 0
        self._topic = to.name
        self._partitions = [state_partition(group) % len(to.leaders) for group in groups]
        self._records = [records_of(group, committed) for group in groups]
        self._batch = lru_cache(maxsize=None)(self._batch_of)

    def _batch_of(self, members: tuple[int, ...]) -> bytes:
        return build_batch(0, [record for member in members for record in self._records[member]])

    def send(self, members: Sequence[int]) -> None:
        """One Produce with what the commits of these clients append."""
        self.sent += 1
        self.socket.sendall(self.encoded(members))

    def encoded(self, members: Sequence[int]) -> bytes:
        """The same, as it is sent."""
        by_partition: dict[int, list[int]] = {}
        for member in members:
            by_partition.setdefault(self._partitions[member], []).append(member)
        request = registry.message("ProduceRequest")
        data = [
            request.PartitionProduceData(index=index, records=self._batch(tuple(sorted(members_of_partition))))
            for index, members_of_partition in by_partition.items()
        ]
        topics = [request.TopicProduceData(name=self._topic, partition_data=data)]
        message = request(acks=-1, timeout_ms=5000, topic_data=topics)
        return bytes(frames.request(PRODUCE, PRODUCE_VERSION, self.sent, "bench", message))


class Waiting:
    """A response that arrives in pieces."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._received = b""

    def whole(self) -> bytes | None:
        """The response, once all of it is here."""
        self._received += self._socket.recv(RESPONSE_MAX)
        received = self._received
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            return None
        self._received = b""
        return received


class CommitsAndAppends:
    """Clients in one thread; each commits, has it appended, and continues."""

    def __init__(self, sockets: Sequence[socket.socket], appends: Appends, work: Sequence[Sequence[bytes]]) -> None:
        self._sockets, self._appends = sockets, appends
        self._left = [iter(each) for each in work]
        self._selector = selectors.DefaultSelector()
        for member, sock in enumerate(sockets):
            self._selector.register(sock, selectors.EVENT_READ, (member, Waiting(sock)))
        self._selector.register(appends.socket, selectors.EVENT_READ, (-1, Waiting(appends.socket)))
        self._accepted: list[int] = []
        self._appending: list[int] = []
        self._open = 0

    def run(self) -> None:
        """All commits of all clients."""
        for member in range(len(self._sockets)):
            self._next(member)
        while self._open:
            for key, _ in self._selector.select():
                member, waiting = key.data
                response = waiting.whole()
                if response is None:
                    continue
                if member >= 0:
                    self._accepted.append(member)
                else:
                    appended, self._appending = self._appending, []
                    for each in appended:
                        self._open -= 1
                        self._next(each)
            if self._accepted and not self._appending:
                self._appending, self._accepted = self._accepted, []
                self._appends.send(self._appending)
        self._selector.close()

    def _next(self, member: int) -> None:
        request = next(self._left[member], None)
        if request is not None:
            self._open += 1
            self._sockets[member].sendall(request)


def one_after_the_other(commit: socket.socket, appends: Appends, requests: Sequence[bytes]) -> float:
    """The median of an OffsetCommit and then a Produce, in milliseconds."""
    took = []
    for request in requests:
        began = time.perf_counter()
        commit.sendall(request)
        response(commit)
        appends.send([0])
        response(appends.socket)
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def response(sock: socket.socket) -> None:
    """Wait for one response, with any content."""
    waiting = Waiting(sock)
    while waiting.whole() is None:
        pass
