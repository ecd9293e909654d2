"""Reader of the log of a topic of the proxy's own, from its start, over a connection to its leader.

A caller that fetches the same partitions again and again uses a fetch session (KIP-227): a broker without news responds
with a few bytes, instead of an entry for each partition. Fetch uses the topic id if the caller knows it, to detect a
topic that was deleted and created anew under the same name (KIP-516).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kafka_share_proxy.brokers.cluster_connection import ClusterConnection, InFlight
from kafka_share_proxy.brokers.repeated_request import RepeatedRequest, Repetition, content_of
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost, error_name
from kafka_share_proxy.wire.values import ZERO_UUID

FETCH_VERSION, LIST_OFFSETS_VERSION = 11, 6
FETCH_BY_ID_VERSION = 13
EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets: start of a log, and the offset after its last record."""
CONSUMER = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels."""
NO_SESSION, NEW_SESSION = -1, 0
"""Session epochs."""
EPOCH_MAX = 2**31 - 1


@dataclass(slots=True, eq=False)
class LogSession:
    """Fetch session of one connection, for one topic. Without one at the broker, every request is complete."""

    session_id: int = 0
    epoch: int = NEW_SESSION
    positions: dict[int, int] = field(default_factory=dict)
    """Positions that the broker knows."""

    def responded(self, response: messages.FetchResponse, positions: Mapping[int, int]) -> bool:
        """Return False if the broker has evicted the session: the request must be repeated. Raises UpstreamLost.

        A broker without room for another session responds with session 0.
        """
        is_new = self.epoch == NEW_SESSION
        if response.error_code != ErrorCode.NONE or not response.session_id:
            self.session_id, self.epoch, self.positions = 0, NEW_SESSION, {}
        else:
            self.session_id, self.positions = response.session_id, dict(positions)
            self.advance()
        if is_new and response.error_code != ErrorCode.NONE:
            raise UpstreamLost(f"the broker refuses a fetch session: {error_name(response.error_code)}")
        return response.error_code == ErrorCode.NONE

    def advance(self) -> None:
        """Continue after a response of this session without an error."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1


async def request_offsets(
    opened: ClusterConnection,
    topic: str,
    partitions: Iterable[int],
    timestamp: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> list[messages.ListOffsetsResponse.ListOffsetsPartitionResponse]:
    """Return the response's entries, errors included. Raises UpstreamLost."""
    request = messages.ListOffsetsRequest
    entries = [request.ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions]
    topics = [request.ListOffsetsTopic(name=topic, partitions=entries)]
    query = request(replica_id=CONSUMER, isolation_level=isolation_level, topics=topics)
    response = await opened.send_request(ApiKey.LIST_OFFSETS, query, version=LIST_OFFSETS_VERSION)
    return list(response.topics[0].partitions)


async def fetch(
    opened: ClusterConnection,
    topic: str,
    positions: Mapping[int, int],
    *,
    wait_ms: int,
    max_bytes: int,
    partition_bytes: int,
    isolation_level: int = READ_UNCOMMITTED,
    topic_id: bytes = ZERO_UUID,
    session: LogSession | None = None,
    in_flight: InFlight | None = None,
) -> list[messages.FetchResponse.PartitionData]:
    """Fetch from `positions` (partition -> offset). Errors are included. Raises UpstreamLost.

    `topic_id`: the topic must have this id. If another topic has the name by now, the error is UNKNOWN_TOPIC_ID.
    `session`: in it, partitions are omitted in which nothing changed. `in_flight`: the request was sent already, by
    `repeated_fetch`.
    """
    version = _version(topic_id)

    def query() -> messages.FetchRequest:
        known = {} if session is None else session.positions
        request = _request(session, wait_ms, max_bytes, isolation_level)
        is_same = known == positions  # as in nearly every round of a tail
        partitions = [
            request.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
            for partition, offset in (() if is_same else positions.items())
            if known.get(partition) != offset
        ]
        forgotten = [] if is_same else [partition for partition in known if partition not in positions]
        if partitions:
            request.topics = [request.FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)]
        if forgotten:
            request.forgotten_topics_data = [
                request.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=forgotten)
            ]
        return request

    if in_flight is None:
        response = await opened.send_request(ApiKey.FETCH, query(), version=version)
    else:
        response = await opened.finish(ApiKey.FETCH, version, in_flight)
    while session is not None and not session.responded(response, positions):  # the second is of a new session
        response = await opened.send_request(ApiKey.FETCH, query(), version=version)
    return [entry for responded in response.responses for entry in responded.partitions]


def repeated_fetch(
    opened: ClusterConnection,
    session: LogSession,
    *,
    wait_ms: int,
    max_bytes: int,
    isolation_level: int = READ_UNCOMMITTED,
    topic_id: bytes = ZERO_UUID,
    responded: Callable[[float], float | None],
    late_s: float,
) -> RepeatedRequest | None:
    """Return a run of `fetch` with the positions of the session, while the broker has no news.

    None if the loop cannot repeat requests on this connection, or without a session. `responded`, `late_s`: see
    `Repetition`. If a request is in flight at the end, `fetch` must receive its response.
    """
    repeating, version = opened.repeating, _version(topic_id)
    if repeating is None or not session.session_id:
        return None
    query = _request(session, wait_ms, max_bytes, isolation_level)

    def request(correlation_id: int) -> bytes:
        query.session_epoch = session.epoch
        return opened.request(ApiKey.FETCH, version, correlation_id, query)

    def responded_without_news(sent: float) -> float | None:
        session.advance()
        return responded(sent)

    expected = content_of(ApiKey.FETCH, version, messages.FetchResponse(session_id=session.session_id))
    return RepeatedRequest(opened, *repeating, Repetition(request, expected, responded_without_news, late_s))


def _request(session: LogSession | None, wait_ms: int, max_bytes: int, isolation_level: int) -> messages.FetchRequest:
    """Return a request that names no partitions."""
    return messages.FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=0 if session is None else session.session_id,
        session_epoch=NO_SESSION if session is None else session.epoch,
    )


def _version(topic_id: bytes) -> int:
    return FETCH_VERSION if topic_id == ZERO_UUID else FETCH_BY_ID_VERSION
