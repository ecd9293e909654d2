"""A relay that records ShareFetch and ShareAcknowledge of all clients, as a history for tests/oracle/histories.

Times are those at which a request was forwarded and its response received: the broker or proxy did its work between.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.headers import peek
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KINDS = ("gap", "accept", "release", "reject", "renew")
RENEW, FINAL_EPOCH = "renew", -1
VOID = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED}
)
"""Errors of a whole request that had no effect."""
DIAL_S = 60.0
"""Seconds during which a restarting proxy is dialled again."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class Exchange:
    """One ShareFetch or ShareAcknowledge."""

    request: Any
    call: int
    response: Any = None
    end: int | None = None


@dataclass
class Recorder:
    """Everything that members of one group sent and received. They read one topic."""

    group: str
    exchanges: list[Exchange] = field(default_factory=list)
    session_ends: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    failovers: list[tuple[int, int]] = field(default_factory=list)
    """When an owner was killed, and when its successor was ready."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_request(self, frame: bytes) -> Exchange | None:
        """Note a request before it is forwarded. None: it is another one, or of another group."""
        _, request = frames.decode_request(frame)
        if request.group_id != self.group:
            return None
        exchange = Exchange(request, time.monotonic_ns())
        with self._lock:
            self.exchanges.append(exchange)
        if request.share_session_epoch == FINAL_EPOCH:
            self.on_session_end(request.member_id)
        return exchange

    def on_session_end(self, member: str) -> None:
        """Note that the locks of the member may end from now on."""
        with self._lock:
            self.session_ends[member].append(time.monotonic_ns())

    def write(self, path: Path, keys: Mapping[Place, bytes | None], *, lock_ms: int, **run: Any) -> None:
        """Write the history. `keys`: of every record. `run`: limit, keyed, settled, exact."""
        with path.open("w") as out:
            for line in self._lines(keys, lock_ms, run):
                out.write(json.dumps(line) + "\n")

    def _lines(self, keys: Mapping[Place, bytes | None], lock_ms: int, run: Mapping[str, Any]) -> Iterator[Any]:
        yield {"op": "run", **run}
        for (partition, offset), key in sorted(keys.items()):
            key_field = {} if key is None else {"key": key.hex()}
            yield {"op": "record", "partition": partition, "first": offset, "last": offset, **key_field}
        for call, end in self.failovers:
            for partition in sorted({partition for partition, _ in keys}):
                yield {"op": "failover", "partition": partition, "call": call, "return": end}
        locks = 0
        for exchange in self.exchanges:
            for line in operations(exchange):
                if line["op"] == "acquire" or line.get("kind") == RENEW:
                    locks += 1
                    line["lock"] = locks
                    ends = {"op": "expire", "call": self._ends_from(line, lock_ms)}
                    yield {name: line[name] for name in ("member", "partition", "first", "last", "lock")} | ends
                yield line

    def _ends_from(self, line: Mapping[str, Any], lock_ms: int) -> int:
        """Return when the lock that begins with an operation may end by itself."""
        ends = [line["call"] + lock_ms * 1_000_000]
        ends += [at for at in self.session_ends[line["member"]] if at >= line["call"]]
        return int(min(ends))


def operations(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """Yield the acknowledgements and acquisitions of an exchange."""
    outcomes = _outcomes(exchange)
    for topic in exchange.request.topics:
        for partition in topic.partitions:
            batches = list(_batches(partition.acknowledgement_batches))
            outcome = outcomes(partition.partition_index, sum(last - first + 1 for first, last, _ in batches))
            if outcome is not None:
                for first, last, kind in batches:
                    yield _line(exchange, "acknowledge", partition.partition_index, first, last) | {
                        "kind": kind, "outcome": outcome, "return": None if outcome == "unknown" else exchange.end,
                    }  # fmt: skip
    for _, partition in _response_partitions(exchange.response):
        for each in getattr(partition, "acquired_records", None) or ():
            line = _line(exchange, "acquire", partition.partition_index, each.first_offset, each.last_offset)
            yield line | {"deliveries": each.delivery_count, "return": exchange.end}


def _line(exchange: Exchange, op: str, partition: int, first: int, last: int) -> dict[str, Any]:
    member = exchange.request.member_id
    return {"op": op, "member": member, "partition": partition, "first": first, "last": last, "call": exchange.call}


def _batches(batches: Iterable[Any]) -> Iterator[tuple[int, int, str]]:
    """Yield first offset, last offset and kind."""
    for batch in batches:
        types = batch.acknowledge_types
        if len(types) == 1:
            yield batch.first_offset, batch.last_offset, KINDS[types[0]]
        else:
            for number, kind in enumerate(types):
                yield batch.first_offset + number, batch.first_offset + number, KINDS[kind]


def _response_partitions(response: Any) -> Iterator[tuple[bytes, Any]]:
    for topic in () if response is None else response.responses:
        for partition in topic.partitions:
            yield topic.topic_id, partition


def _outcomes(exchange: Exchange) -> Callable[[int, int], str | None]:
    """Return the function of partition and number of acknowledged offsets -> outcome. None: without effect."""
    response = exchange.response
    if response is not None and response.error_code in VOID:
        return lambda _partition, _count: None
    codes: dict[int, int] = {}
    if response is not None and response.error_code == ErrorCode.NONE:
        for _, partition in _response_partitions(response):
            code = getattr(partition, "acknowledge_error_code", partition.error_code)
            codes[partition.partition_index] = code

    def outcome(partition: int, count: int) -> str | None:
        code = codes.get(partition)
        if code == ErrorCode.NONE:
            return "ok"
        if code == ErrorCode.INVALID_RECORD_STATE:  # one invalid offset refuses all of the partition
            return "refused" if count == 1 else None
        return "unknown"

    return outcome


class RecordingRelay:
    """Relays connections from one address to another, frame by frame."""

    def __init__(self, recorder: Recorder, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self._recorder, self._target = recorder, target
        self._listener = socket.create_server(listen)
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for sock in (self._listener, *self._sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _dial(self) -> socket.socket:
        end = time.monotonic() + DIAL_S
        while True:
            try:
                return socket.create_connection(self._target)
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def _serve(self, client: socket.socket) -> None:
        server = self._dial()
        self._sockets += [client, server]
        connection = _Connection(self._recorder, client, server)
        back = threading.Thread(target=connection.forward_responses, daemon=True)
        back.start()
        connection.forward_requests()
        back.join()
        for sock in (client, server):
            sock.close()


class _Connection:
    def __init__(self, recorder: Recorder, client: socket.socket, server: socket.socket) -> None:
        self._recorder, self._client, self._server = recorder, client, server
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending: dict[int, tuple[int, int, Exchange]] = {}
        self._members: set[str] = set()

    def forward_requests(self) -> None:
        for frame in _frames(self._client):
            key, version, correlation_id = peek(frame[4:])
            if key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
                exchange = self._recorder.on_request(frame[4:])
                if exchange is not None:
                    self._pending[correlation_id] = key, version, exchange
                    self._members.add(exchange.request.member_id)
            with suppress(OSError):
                self._server.sendall(frame)
        self._end(self._server)

    def forward_responses(self) -> None:
        for frame in _frames(self._server):
            now = time.monotonic_ns()
            pending = self._pending.pop(int.from_bytes(frame[4:8], "big"), None)
            if pending is not None:
                key, version, exchange = pending
                _, exchange.response = frames.decode_response(key, version, frame[4:])
                if key == ApiKey.SHARE_FETCH:
                    for _, partition in _response_partitions(exchange.response):
                        partition.records = None  # a history has none
                exchange.end = now
            with suppress(OSError):
                self._client.sendall(frame)
        self._end(self._client)

    def _end(self, other: socket.socket) -> None:
        """Close the other side after the end of the sessions is noted."""
        for member in self._members:
            self._recorder.on_session_end(member)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Yield whole frames with their size."""
    with source.makefile("rb", 1 << 16) as reader, suppress(OSError):
        while len(size := reader.read(4)) == 4:
            body = reader.read(int.from_bytes(size, "big"))
            yield size + body
