"""A share session with one node: it acquires offsets and renews their locks until they are settled.

Rules: pipeline/README.md 43 and 45. A thread renews all locks of the session together. Any error of the connection ends
the session, and the broker then releases its locks.

Source: KIP-932, KIP-1222; consumer/share_consumers.md rules 3, 4 and 11.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_messages import ShareMessages
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
from kafka_share_proxy.consumer.share.share_renewals import FETCH_WAIT, RENEW_AFTER
from kafka_share_proxy.consumer.share.share_session import FINAL_EPOCH, ShareSession
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan, ascending
from kafka_share_proxy.pipeline.kafka.cluster import ReadRefused, TryAgain, check_code
from kafka_share_proxy.pipeline.kafka.connection import BlockingConnection
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.values import TopicPartition

SHARE_VERSION_MAX, RENEWS_SINCE = 2, 2
REQUESTS_MAX = 64
"""Maximum number of requests for one acknowledgement or renewal. If the broker refuses a partition, its ranges are sent
again in halves, until the refused range is alone.
"""
REPEATS_MAX, REPEAT_S = 10, 0.3
"""Maximum number of retries after an error in REPEATED, and the pause before each in seconds."""
REPEATED = frozenset({
    ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
})  # fmt: skip
"""Error codes after which an acknowledgement is sent again, which is harmless: it was not stored, or its outcome is
unknown.
"""
REFUSED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})
"""Error codes of a partition that a retry cannot change."""

Spans = Mapping[TopicPartition, list[OffsetSpan]]
_Work = deque[tuple[TopicPartition, list[OffsetSpan]]]


class AcquiredOffsets(NamedTuple):
    """A range of offsets that one session acquired together. Its locks expire together."""

    session: LockSession
    partition: TopicPartition
    topic_id: bytes
    span: OffsetSpan
    delivery_count: int


class Fetched(NamedTuple):
    """Records and locks from one ShareFetch."""

    acquired: list[AcquiredOffsets]
    troubles: list[str]
    """Errors of partitions and nodes that returned nothing, and may do so later."""


class ShareMemberName(NamedTuple):
    """Group and member id of the requests."""

    group: str
    member_id: str


def subtract(spans: Iterable[OffsetSpan], removed: Iterable[OffsetSpan]) -> list[OffsetSpan]:
    """Return the parts of `spans` that are not in `removed`."""
    removed_ranges = OffsetRanges(removed)
    return [part for span in spans for part in removed_ranges.gaps(span.start, span.end)]


def count_offsets(spans: Iterable[OffsetSpan]) -> int:
    return sum(span.end - span.start for span in spans)


class LockSession:
    """A share session. Thread-safe."""

    def __init__(
        self,
        node: int,
        dial: Callable[[], BlockingConnection],
        name: ShareMemberName,
        fetch_bytes: int,
        note: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`dial` opens the connection, at the first `fetch`."""
        self.lost = 0
        """Number of offsets whose locks ended before they were settled."""
        self.renewals = 0
        """Number of renewal requests."""
        self._dial, self._name, self._fetch_bytes, self._note, self._now = dial, name, fetch_bytes, note, now
        self._session = ShareSession(node)
        self._connection: BlockingConnection | None = None
        self._held: dict[TopicPartition, list[OffsetSpan]] = {}
        """Acquired offsets, one span for each acquisition."""
        self._lock_s = 0.0
        self._renew_at = math.inf
        self._is_over = self._is_warned = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._renew_until_over, name=f"share locks at node {node}", daemon=True)

    @property
    def is_over(self) -> bool:
        """True if the session has ended, and all its locks with it."""
        return self._is_over

    @property
    def is_idle(self) -> bool:
        return not self._held

    # Fetching

    def fetch(self, readable: Mapping[TopicPartition, bytes], count_max: int, wait_s: float) -> Fetched:
        """Acquire offsets.

        `count_max` limits their number, except that the last batch is acquired whole. `wait_s` is shortened while locks
        are held. Raises ReadRefused, LoginRefused, and RemoteProtocolError if the broker does not support share groups.
        """
        with self._condition:
            if self._is_over:
                return Fetched([], [f"the share session with node {self._session.node_id} has ended"])
            try:
                return self._send_fetch(dict(readable), count_max, wait_s)
            except (UpstreamLost, TryAgain) as error:
                self._end(str(error))
                return Fetched([], [str(error)])
            except ProxyError as error:
                self._end(str(error))
                raise

    def _send_fetch(self, readable: dict[TopicPartition, bytes], limit: int, wait_s: float) -> Fetched:
        connection = self._open_connection()
        version = connection.version(ApiKey.SHARE_FETCH, SHARE_VERSION_MAX)
        self._session.can_renew = version >= RENEWS_SINCE
        limits = ShareConsumerOptions(
            group_id=self._name.group, max_poll_records=limit, held_records_max=limit, fetch_max_bytes=self._fetch_bytes
        )
        wait_s = min(wait_s, FETCH_WAIT * self._lock_s) if self._held else wait_s
        request = ShareMessages(limits, self._name.member_id).fetch(self._session, readable, {}, wait_s)
        sent = self._now()
        response = connection.send_request(ApiKey.SHARE_FETCH, request, version)
        check_code(response.error_code, f"ShareFetch of group {self._name.group}: {response.error_message or ''}")
        self._session.advance(readable)
        if response.acquisition_lock_timeout_ms > 0:
            self._lock_s = response.acquisition_lock_timeout_ms / 1000
        return self._acquired_in(response, sent)

    def _open_connection(self) -> BlockingConnection:
        if self._connection is None:
            self._connection = self._dial()
            self._thread.start()
        return self._connection

    def _acquired_in(self, response: messages.ShareFetchResponse, sent: float) -> Fetched:
        names = {(topic_id, partition.partition): partition for partition, topic_id in self._session.partitions.items()}
        fetched = Fetched([], [])
        for topic in response.responses:
            for entry in topic.partitions:
                partition = names.get((bytes(topic.topic_id), entry.partition_index))
                if partition is None:
                    continue
                if entry.error_code in REFUSED:
                    raise ReadRefused(f"{partition}: {error_name(entry.error_code)}")
                if entry.error_code != ErrorCode.NONE:
                    fetched.troubles.append(f"{partition}: {error_name(entry.error_code)}")
                for each in entry.acquired_records or ():
                    span = OffsetSpan(each.first_offset, each.last_offset + 1)
                    fetched.acquired.append(
                        AcquiredOffsets(self, partition, bytes(topic.topic_id), span, each.delivery_count)
                    )
        self._hold(fetched.acquired, sent)
        return fetched

    def _hold(self, acquired: Iterable[AcquiredOffsets], sent: float) -> None:
        by_partition: dict[TopicPartition, list[OffsetSpan]] = defaultdict(list)
        for each in acquired:
            by_partition[each.partition].append(each.span)
        for partition, spans in by_partition.items():
            self._held[partition] = sorted([*subtract(self._held.get(partition, ()), spans), *spans])
        if by_partition and not self._session.can_renew and not self._is_warned:
            self._is_warned = True
            self._note(
                f"node {self._session.node_id} cannot renew locks (ShareAcknowledge v1): a batch may not take longer "
                f"than {self._lock_s * 1000:.0f} ms"
            )
        if by_partition and self._session.can_renew and self._renew_at == math.inf:
            self._renew_at = sent + RENEW_AFTER * self._lock_s
            self._condition.notify_all()

    # Renewing

    def _renew_until_over(self) -> None:
        """Renew due locks until the session ends. Runs in the thread."""
        with self._condition:
            while not self._is_over:
                pause = self._renew_at - self._now()
                if pause > 0:
                    self._condition.wait(None if pause == math.inf else pause)
                    continue
                sent = self._now()
                self.acknowledge(AcknowledgeType.RENEW, self._held)
                self._renew_at = sent + RENEW_AFTER * self._lock_s if self._held else math.inf

    # Acknowledging and renewing

    def acknowledge(self, kind: AcknowledgeType, spans_of: Spans) -> dict[TopicPartition, list[OffsetSpan]]:
        """Acknowledge or renew held ranges. Return those that the broker refused, or whose outcome is unknown."""
        refused: dict[TopicPartition, list[OffsetSpan]] = defaultdict(list)
        repeats = 0
        with self._condition:
            work = self._still_held(spans_of, refused)
            for _ in range(REQUESTS_MAX):
                if not work:
                    break
                batch = _one_each(work)
                codes = self._error_codes(kind, batch)
                if may_pass := any(code in REPEATED for code in codes.values()):
                    repeats += 1
                for partition, spans in batch.items():
                    parts = self._ranges_to_resend(kind, partition, spans, codes, repeats)
                    if parts is None:
                        refused[partition] += spans
                    work.extend((partition, part) for part in parts or ())
                if may_pass:
                    self._condition.wait(REPEAT_S)
            for partition, spans in work:
                refused[partition] += spans
            self._lose(refused)
        return refused

    def _still_held(self, spans_of: Spans, refused: dict[TopicPartition, list[OffsetSpan]]) -> _Work:
        """Refuse ranges that are not held: one would make the broker refuse its partition."""
        work: _Work = deque()
        for partition, spans in spans_of.items():
            held = OffsetRanges(self._held.get(partition, ()))
            good = [span for span in spans if held.covers(*span)]
            if len(good) < len(spans):
                refused[partition] += [span for span in spans if not held.covers(*span)]
            if good:
                work.append((partition, good))
        return work

    def _ranges_to_resend(
        self,
        kind: AcknowledgeType,
        partition: TopicPartition,
        spans: list[OffsetSpan],
        codes: Mapping[TopicPartition, int],
        repeats: int,
    ) -> list[list[OffsetSpan]] | None:
        """Return the lists of ranges to send again: none, all, or each half. None if a retry is useless."""
        code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code == ErrorCode.NONE:
            if kind is not AcknowledgeType.RENEW:
                self._drop(partition, spans)
            return []
        if self._is_over or (code in REPEATED and repeats > REPEATS_MAX):
            return None
        if code in REPEATED:
            return [spans]
        half = len(spans) // 2
        return [spans[:half], spans[half:]] if half else None

    def _error_codes(self, kind: AcknowledgeType, spans_of: Spans) -> dict[TopicPartition, int]:
        """Send a ShareAcknowledge. Return the error codes by partition, none if the session has ended."""
        if self._is_over or self._connection is None:
            return {}
        version = self._connection.version(ApiKey.SHARE_ACKNOWLEDGE, SHARE_VERSION_MAX)
        request = self._acknowledgement(kind, spans_of)
        try:
            response = self._connection.send_request(ApiKey.SHARE_ACKNOWLEDGE, request, version)
            check_code(
                response.error_code, f"ShareAcknowledge of group {self._name.group}: {response.error_message or ''}"
            )
        except (ProxyError, TryAgain) as error:
            self._end(str(error))
            return {}
        self._session.advance()
        if response.acquisition_lock_timeout_ms > 0:
            self._lock_s = response.acquisition_lock_timeout_ms / 1000
        self.renewals += kind is AcknowledgeType.RENEW
        names = {(self._session.ids[partition], partition.partition): partition for partition in spans_of}
        return {
            partition: entry.error_code
            for topic in response.responses
            for entry in topic.partitions
            if (partition := names.get((bytes(topic.topic_id), entry.partition_index))) is not None
        }

    def _acknowledgement(self, kind: AcknowledgeType, spans_of: Spans) -> Any:
        request = messages.ShareAcknowledgeRequest
        topics: dict[bytes, list[Any]] = defaultdict(list)
        for partition, spans in spans_of.items():
            batches = [
                request.AcknowledgementBatch(first_offset=start, last_offset=end - 1, acknowledge_types=[int(kind)])
                for start, end in ascending(spans)
            ]
            entry = request.AcknowledgePartition(partition_index=partition.partition, acknowledgement_batches=batches)
            topics[self._session.ids[partition]].append(entry)
        return request(
            group_id=self._name.group,
            member_id=self._name.member_id,
            share_session_epoch=self._session.epoch,
            is_renew_ack=kind is AcknowledgeType.RENEW,
            topics=[request.AcknowledgeTopic(topic_id=key, partitions=entries) for key, entries in topics.items()],
        )

    def _lose(self, refused: Spans) -> None:
        for partition, spans in refused.items():
            if lost_count := self._drop(partition, spans):
                self.lost += lost_count
                self._note(f"{lost_count} offsets of {partition} from {spans[0].start} on were no longer held")

    def _drop(self, partition: TopicPartition, spans: list[OffsetSpan]) -> int:
        """Forget ranges. Return the number of offsets that were held."""
        before = self._held.pop(partition, [])
        remaining = subtract(before, spans)
        if remaining:
            self._held[partition] = remaining
        return count_offsets(before) - count_offsets(remaining)

    # The end

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._connection is not None:
            self._connection.close()
        if removed := sum(map(count_offsets, self._held.values())):
            self.lost += removed
            self._note(f"the share session with node {self._session.node_id} ended, with {removed} locks: {reason}")
        self._held.clear()
        self._condition.notify_all()

    def close(self) -> None:
        with self._condition:
            if self._connection is not None and self._session.is_open and not self._is_over:
                self._held.clear()
                with suppress(ProxyError):
                    self._send_final_acknowledge(self._connection)
            self._end("closed")
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _send_final_acknowledge(self, connection: BlockingConnection) -> None:
        request = messages.ShareAcknowledgeRequest(
            group_id=self._name.group, member_id=self._name.member_id, share_session_epoch=FINAL_EPOCH, topics=[]
        )
        connection.send_request(
            ApiKey.SHARE_ACKNOWLEDGE, request, connection.version(ApiKey.SHARE_ACKNOWLEDGE, SHARE_VERSION_MAX)
        )


def _one_each(work: _Work) -> dict[TopicPartition, list[OffsetSpan]]:
    """Return one entry of each partition: a request may contain a partition only once."""
    first: dict[TopicPartition, list[OffsetSpan]] = {}
    for _ in range(len(work)):
        partition, spans = work.popleft()
        if partition in first:
            work.append((partition, spans))
        else:
            first[partition] = spans
    return first
