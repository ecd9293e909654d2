"""ShareFetch v1-v2 (KIP-932; v2: acquire modes, KIP-1206, and RENEW, KIP-1222), served here.

- Session first, then its acknowledgements, then the fetch (sharegroups/README.md rules 13, 14, 44). Partitions of the
  response: sharegroups/README.md rule 16.
- IsRenewAck, MaxRecords 0 and MaxBytes 0 suppress the fetch; epoch -1 ends the session.
- A session that ends while its request waits (the group is deleted, the member opens another session): 122.
- Records are sent unchanged. The broker's quota throttle time is forwarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.waiting import wait_until
from kafka_share_proxy.reading.far_records import encoded_slice
from kafka_share_proxy.sharegroups.apis import refusals
from kafka_share_proxy.sharegroups.apis.share_requests import (
    NO_HINT,
    AckBatches,
    delay_tags,
    end_session,
    end_with_connection,
    hint_endpoints,
    leader_hint,
    let_move,
    member_id_mistake,
    partitions_in,
    request_access,
    without_outcome,
)
from kafka_share_proxy.sharegroups.fetch.acknowledgements import Codes, decide
from kafka_share_proxy.sharegroups.fetch.fetching import fetch
from kafka_share_proxy.sharegroups.fetch.session_survey import NO_RECORDS, Result, Results, ShareFetching, begin
from kafka_share_proxy.sharegroups.model.sessions import FINAL_EPOCH, Session, SessionKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.share_fetch_frames import FetchedPartition, frame_without_errors
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

KEY = ApiKey.SHARE_FETCH
VERSIONS = (1, 2)

AT_ONCE_MAX = 500
"""Number of partitions up to which a response is encoded in one step."""


async def handle(call: Call[messages.ShareFetchRequest], services: ShareServices) -> frames.ResponseFrame:
    request, connection = call.message, call.connection
    if request.group_id is None:
        return _refusal(call, ErrorCode.INVALID_REQUEST, "Group id must not be null.")
    renewal_error = _renew_mistake(call)
    key = SessionKey(request.group_id, request.member_id or "", connection.node_id)
    partitions, batches = await partitions_in(request.topics, call.work)
    end_with_connection(connection, services)
    member_id_error = member_id_mistake(request.member_id)
    checked_partitions = () if member_id_error else (*partitions, *services.coordinator.sessions.partitions_of(key))
    code, judged = await request_access(call, services, request.group_id, checked_partitions, batches)
    if code != NO_ERROR:
        return _refusal(call, code)
    if member_id_error or renewal_error:
        return _refusal(call, ErrorCode.INVALID_REQUEST, member_id_error or renewal_error)
    forgotten = [
        TopicIdPartition(topic.topic_id, partition)
        for topic in request.forgotten_topics_data or ()
        for partition in topic.partitions
    ]
    session = services.coordinator.sessions.fetch(
        key, request.share_session_epoch, connection.id, partitions, forgotten, bool(batches)
    )
    if isinstance(session, ErrorCode):
        if session == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            await wait_until(services.timers, services.timers.now() + max(request.max_wait_ms, 0) / 1000)
        return _refusal(call, session)
    fetching = None if request.share_session_epoch == FINAL_EPOCH else begin(call, services, session, judged)
    acknowledging = decide(call, services, key, batches, judged) if batches else None
    if fetching is not None:
        await fetch(fetching, acknowledging)
    elif acknowledging is not None:
        acknowledging.write()
    response = _Response(call, services, session, fetching, batches)
    frame, outcome = None, Codes()
    if acknowledging is not None:
        frame = response.frame_if(acknowledging.codes)  # encoded while the changes are being stored
        outcome = await acknowledging.outcome(fetching.response_bytes() if fetching else 0)
    if not services.coordinator.sessions.is_open(session):
        return _refusal(call, ErrorCode.SHARE_SESSION_NOT_FOUND)
    if fetching is None:
        end_session(services, key)
    if frame is not None and not any(outcome.values()):
        return frame
    return response.frame_if(outcome) or await response.frame(outcome)


def _renew_mistake(call: Call[messages.ShareFetchRequest]) -> str | None:
    """Return the error text of a request that both renews and fetches, which KIP-1222 forbids, or None."""
    request = call.message
    if call.version < 2 or not request.is_renew_ack:
        return None
    limits = ("max_wait_ms", "min_bytes", "max_bytes", "max_records")
    nonzero_limits = [name.title().replace("_", "") for name in limits if getattr(request, name) != 0]
    return f"{', '.join(nonzero_limits)} must be 0 when IsRenewAck is set." if nonzero_limits else None


def _refusal(call: Call[messages.ShareFetchRequest], code: ErrorCode, text: str | None = None) -> bytes:
    message = messages.ShareFetchResponse
    return frames.response(KEY, call.version, call.correlation_id, message(error_code=code, error_message=text))


class _Response:
    """Response to one request, with the partitions that sharegroups/README.md rule 16 requires."""

    def __init__(
        self,
        call: Call[messages.ShareFetchRequest],
        services: ShareServices,
        session: Session,
        fetching: ShareFetching | None,
        batches: Mapping[TopicIdPartition, AckBatches],
    ) -> None:
        self._call = call
        self._services = services
        self._session = session
        self._fetched: Results = {} if fetching is None else fetching.results
        self._batches = batches
        self._throttle_time_ms = 0 if fetching is None else fetching.throttle_time_ms
        self._lock_duration_ms = round(services.coordinator.settings(session.key.group_id).lock_duration_s * 1000)
        self._included: Results | None = None
        """Partitions that are included because of what was fetched. `Session.include` is called once for each."""

    def frame_if(self, outcome: Mapping[TopicIdPartition, ErrorCode]) -> frames.ResponseFrame | None:
        """Return the response for this outcome of the acknowledgements.

        None if it has very many partitions, an error or a named delay, which `frame` encodes.
        """
        results = self._with_acknowledged(outcome)
        if len(results) > AT_ONCE_MAX or _has_errors(results, outcome, self._batches):
            return None
        topics: dict[bytes, list[FetchedPartition]] = {}
        for partition, result in results.items():
            entry = (partition.partition, encoded_slice(result.records), result.acquired)
            topics.setdefault(partition.topic_id, []).append(entry)
        return frame_without_errors(self._call.correlation_id, self._throttle_time_ms, self._lock_duration_ms, topics)

    async def frame(self, outcome: Mapping[TopicIdPartition, ErrorCode]) -> frames.ResponseFrame:
        """Return any response."""
        call, results = self._call, self._with_acknowledged(outcome)
        response = await _with_errors(call, self._services, results, outcome, self._batches)
        response.throttle_time_ms, response.acquisition_lock_timeout_ms = self._throttle_time_ms, self._lock_duration_ms
        if len(results) <= AT_ONCE_MAX:
            return frames.response_frame(KEY, call.version, call.correlation_id, response)
        return await call.work.drive(frames.response_frame_in_slices(KEY, call.version, call.correlation_id, response))

    def _with_acknowledged(self, outcome: Iterable[TopicIdPartition]) -> Results:
        if self._included is None:
            include = self._session.include
            self._included = {
                partition: result
                for partition, result in self._fetched.items()
                if include(partition, records=bool(result.acquired), error=result.error != NO_ERROR)
            }
        return {partition: self._included.get(partition, NO_RECORDS) for partition in (*self._included, *outcome)}


def _has_errors(
    results: Mapping[TopicIdPartition, Result],
    outcome: Mapping[TopicIdPartition, ErrorCode],
    batches: Mapping[TopicIdPartition, AckBatches],
) -> bool:
    """Return True if a partition has an error, or confirms a named delay."""
    return (
        any(outcome.values())
        or any(result.error for result in results.values())
        or any(acks.delays for acks in batches.values())
    )


async def _with_errors(
    call: Call[messages.ShareFetchRequest],
    services: ShareServices,
    results: Mapping[TopicIdPartition, Result],
    outcome: Mapping[TopicIdPartition, ErrorCode],
    batches: Mapping[TopicIdPartition, AckBatches],
) -> messages.ShareFetchResponse:
    """Build the partitions of the response, with the leaders that partitions moved to."""
    message = messages.ShareFetchResponse
    topics: dict[bytes, list[messages.ShareFetchResponse.PartitionData]] = {}
    hints = []
    for partition, result in results.items():
        code = outcome.get(partition, NO_ERROR)
        hint = leader_hint(services, partition, result.error or code) if result.error or code else NO_HINT
        hints.append(hint)
        entry = _entry(partition.partition, result, code, hint)
        if partition in batches:
            entry.unknown_tags = delay_tags(batches, partition, code)
        topics.setdefault(partition.topic_id, []).append(entry)
        await call.work.step()
    return message(
        responses=[
            message.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=hint_endpoints(services, message.NodeEndpoint, hints)
        if any(hint != NO_HINT for hint in hints)
        else [],
    )


def _entry(
    partition: int, result: Result, acknowledged: ErrorCode, hint: tuple[int, int]
) -> messages.ShareFetchResponse.PartitionData:
    return messages.ShareFetchResponse.PartitionData(
        partition_index=partition,
        error_code=result.error,
        acknowledge_error_code=acknowledged,
        current_leader=messages.ShareFetchResponse.LeaderIdAndEpoch(leader_id=hint[0], leader_epoch=hint[1]),
        records=encoded_slice(result.records),
        acquired_records=[
            messages.ShareFetchResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in result.acquired
        ],
    )


async def interrupted(call: Call[messages.ShareFetchRequest], _reason: str) -> messages.ShareFetchResponse | None:
    """Build the response for acknowledgements whose outcome is unknown (sharegroups/README.md rule 72)."""
    message = messages.ShareFetchResponse

    def entry(partition: int) -> messages.ShareFetchResponse.PartitionData:
        return _entry(partition, Result(NO_ERROR), ErrorCode.UNKNOWN_SERVER_ERROR, NO_HINT)

    topics = await without_outcome(call.message.topics, entry, message.ShareFetchableTopicResponse, call.work)
    return message(responses=topics) if topics else None


API = DeclaredApi(
    key=KEY,
    handle=handle,
    versions=VERSIONS,
    needs=Needs.OWNER,
    respond_unavailable=refusals.no_session,
    interrupted=interrupted,
    before_move=let_move,
    is_repeated=True,
)
