"""ShareFetch v1-v2 (KIP-932; v2: acquire modes, KIP-1206, and RENEW, KIP-1222), served here.

- Session first, then its acknowledgements, then the fetch (sharegroups/README.md rules 13, 44). The response waits
  until the acknowledgements are stored. The fetch does not, except for the reasons named at `Acknowledging.come_first`.
  Records that the request releases are therefore delivered after all others (KafkaApis.handleShareFetchRequest).
- The response contains partitions with records or an error, new ones, those whose last response was an error, and every
  partition with acknowledgements.
- IsRenewAck, MaxRecords 0 and MaxBytes 0 suppress the fetch; epoch -1 ends the session.
- If the session cache is full, the error is sent after the request's wait.
- A session that ends while its request waits (the group is deleted, the member opens another session): 122.
- Records are sent unchanged. The broker's quota throttle time is forwarded.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.waiting import settled_by, wait_until
from kafka_share_proxy.reading.far_records import on_the_wire
from kafka_share_proxy.sharegroups.apis import refusals
from kafka_share_proxy.sharegroups.apis.share_requests import (
    NO_HINT,
    end_session,
    end_with_connection,
    hint_endpoints,
    leader_hint,
    partitions_in,
    read_refusal,
    without_outcome,
)
from kafka_share_proxy.sharegroups.fetch.acknowledgements import Acknowledging, decide
from kafka_share_proxy.sharegroups.fetch.fetching import ShareFetching
from kafka_share_proxy.sharegroups.fetch.session_survey import Result
from kafka_share_proxy.sharegroups.model.group import member_id_mistake
from kafka_share_proxy.sharegroups.model.sessions import FINAL_EPOCH, Session, SessionKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

KEY = ApiKey.SHARE_FETCH
VERSIONS = (1, 2)

AT_ONCE_MAX = 500
"""Number of partitions up to which a response is encoded in one step."""

_NOTHING = Result()


async def handle(call: Call[messages.ShareFetchRequest], services: ShareServices) -> frames.ResponseFrame:
    request = call.message
    if request.group_id is None:
        return _refusal(call, ErrorCode.INVALID_REQUEST, "Group id must not be null.")
    key = SessionKey(request.group_id, request.member_id or "", call.connection.node_id)
    partitions, batches = await partitions_in(request.topics, call.work)
    mistake = member_id_mistake(request.member_id)
    checked_partitions = () if mistake else (*partitions, *_session_partitions(services, key))
    code = await read_refusal(call, services, request.group_id, checked_partitions, batches)
    if code != ErrorCode.NONE:
        return _refusal(call, code)
    mistake = mistake or _renew_mistake(call)
    if mistake is not None:
        return _refusal(call, ErrorCode.INVALID_REQUEST, mistake)
    forgotten = [TopicIdPartition(t.topic_id, p) for t in request.forgotten_topics_data or () for p in t.partitions]
    session = services.coordinator.sessions.fetch(
        key, request.share_session_epoch, call.connection.id, partitions, forgotten, bool(batches)
    )
    if isinstance(session, ErrorCode):
        if session == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            await wait_until(services.timers, services.timers.now() + max(request.max_wait_ms, 0) / 1000)
        return _refusal(call, session)
    end_with_connection(call.connection, services)
    acknowledging = decide(call, services, key, batches, call.version >= 2 and request.is_renew_ack)
    fetching = await _fetch(call, services, session, acknowledging)
    outcome = await _outcome(acknowledging, fetching, services)
    if not services.coordinator.sessions.lives(session):
        return _refusal(call, ErrorCode.SHARE_SESSION_NOT_FOUND)
    if request.share_session_epoch == FINAL_EPOCH:
        end_session(services, key)
    return await _response(call, services, session, fetching, outcome)


def _session_partitions(services: ShareServices, key: SessionKey) -> tuple[TopicIdPartition, ...]:
    session = services.coordinator.sessions.get(key)
    return () if session is None else session.partitions


def _renew_mistake(call: Call[messages.ShareFetchRequest]) -> str | None:
    """Return the error text of a request that both renews and fetches, which KIP-1222 forbids, or None."""
    request = call.message
    if call.version < 2 or not request.is_renew_ack:
        return None
    limits = ("max_wait_ms", "min_bytes", "max_bytes", "max_records")
    given = [name.title().replace("_", "") for name in limits if getattr(request, name) != 0]
    return f"{', '.join(given)} must be 0 when IsRenewAck is set." if given else None


async def _fetch(
    call: Call[messages.ShareFetchRequest], services: ShareServices, session: Session, acknowledging: Acknowledging
) -> ShareFetching | None:
    """Write the acknowledgements and fetch records. Return None for the request that ends its session."""
    request = call.message
    fetching = None if request.share_session_epoch == FINAL_EPOCH else ShareFetching(call, services, session)
    renews = call.version >= 2 and request.is_renew_ack
    if fetching is None or renews or request.max_records <= 0 or request.max_bytes <= 0 or not len(session):
        acknowledging.write()
        if fetching is not None and len(session):
            await fetching.survey()
    else:
        if not (acknowledging.leave_others_first and await _fetch_unreleased(services, fetching, acknowledging)):
            if acknowledging.come_first:
                await acknowledging.outcome()
            await fetching.run()
        fetching.count()
    return fetching


async def _fetch_unreleased(services: ShareServices, fetching: ShareFetching, acknowledging: Acknowledging) -> bool:
    """Fetch records other than those that the request releases. Return False if there are none.

    In that case it first waits until the release is stored. If the client's wait ends earlier, the response has no
    records, as on a broker.
    """
    try:
        taken = await fetching.acquire_now()
    finally:
        acknowledging.write()
    if not taken:
        await settled_by(services.timers, fetching.deadline, acknowledging.write())
    return taken


async def _outcome(
    acknowledging: Acknowledging, fetching: ShareFetching | None, services: ShareServices
) -> dict[TopicIdPartition, ErrorCode]:
    """Return the outcome of the acknowledgements, reserving response memory for records that wait for it."""
    size = 0
    if fetching is not None and not acknowledging.are_reported:
        size = sum(len(result.records) for result in fetching.results.values())
    reserved = size if size and services.responses.reserve(size) else 0
    try:
        return await acknowledging.outcome()
    finally:
        services.responses.release(reserved)


def _refusal(call: Call[messages.ShareFetchRequest], code: ErrorCode, text: str | None = None) -> bytes:
    message = messages.ShareFetchResponse
    return frames.response(KEY, call.version, call.correlation_id, message(error_code=code, error_message=text))


async def _response(
    call: Call[messages.ShareFetchRequest],
    services: ShareServices,
    session: Session,
    fetching: ShareFetching | None,
    outcome: Mapping[TopicIdPartition, ErrorCode],
) -> frames.ResponseFrame:
    message = messages.ShareFetchResponse
    results = {} if fetching is None else _included(session, fetching.results)
    topics: dict[bytes, list[messages.ShareFetchResponse.PartitionData]] = {}
    hints = []
    for partition in dict.fromkeys((*results, *outcome)):
        result = results.get(partition, _NOTHING)
        code = outcome.get(partition, ErrorCode.NONE)
        hint = leader_hint(services, partition, result.error or code)
        hints.append(hint)
        topics.setdefault(partition.topic_id, []).append(_entry(partition.partition, result, code, hint))
        await call.work.step()
    response = message(
        throttle_time_ms=0 if fetching is None else fetching.throttle_time_ms,
        acquisition_lock_timeout_ms=round(services.coordinator.settings(session.key.group_id).lock_duration_s * 1000),
        responses=[
            message.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=hint_endpoints(services, message.NodeEndpoint, hints)
        if any(hint != NO_HINT for hint in hints)
        else [],
    )
    if len(hints) > AT_ONCE_MAX:
        return await call.work.drive(frames.response_frame_in_slices(KEY, call.version, call.correlation_id, response))
    return frames.response_frame(KEY, call.version, call.correlation_id, response)


def _included(session: Session, results: Mapping[TopicIdPartition, Result]) -> dict[TopicIdPartition, Result]:
    """Return the results to include in the response (sharegroups/README.md rule 16)."""
    return {
        partition: result
        for partition, result in results.items()
        if session.include(partition, records=bool(result.acquired), error=result.error != ErrorCode.NONE)
    }


def _entry(
    partition: int, result: Result, acknowledged: ErrorCode, hint: tuple[int, int]
) -> messages.ShareFetchResponse.PartitionData:
    message = messages.ShareFetchResponse
    return message.PartitionData(
        partition_index=partition,
        error_code=result.error,
        acknowledge_error_code=acknowledged,
        current_leader=message.LeaderIdAndEpoch(leader_id=hint[0], leader_epoch=hint[1]),
        records=on_the_wire(result.records),
        acquired_records=[
            message.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in result.acquired
        ],
    )


async def interrupted(call: Call[messages.ShareFetchRequest], _reason: str) -> messages.ShareFetchResponse | None:
    """Build the response for acknowledgements whose outcome is unknown (sharegroups/README.md rule 72)."""
    message = messages.ShareFetchResponse

    def entry(partition: int) -> messages.ShareFetchResponse.PartitionData:
        return _entry(partition, Result(ErrorCode.NONE), ErrorCode.UNKNOWN_SERVER_ERROR, NO_HINT)

    topics = await without_outcome(call.message.topics, entry, message.ShareFetchableTopicResponse, call.work)
    return message(responses=topics) if topics else None


API = DeclaredApi(
    key=KEY,
    handle=handle,
    versions=VERSIONS,
    needs=Needs.OWNER,
    away=refusals.no_session,
    interrupted=interrupted,
    is_repeated=True,
)
