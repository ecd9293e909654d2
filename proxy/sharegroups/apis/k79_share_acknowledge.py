"""ShareAcknowledge v1-v2 (KIP-932; v2: RENEW, KIP-1222), served here.

- One sequence of session epochs with ShareFetch; epoch 0 is refused (123), -1 ends the session after its work.
- Every partition named is answered; a partition without batches succeeds.
- v2 tells the group's lock duration, so that a changed one reaches the client with a renewal.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.forwarding.ask_and_reply import replied
from proxy.forwarding.declared_api import DeclaredApi, Needs
from proxy.forwarding.interfaces import Call
from proxy.sharegroups.apis import refusals
from proxy.sharegroups.apis.share_requests import (
    end_session,
    end_with_connection,
    hint_endpoints,
    leader_hint,
    named,
    read_refusal,
    without_outcome,
)
from proxy.sharegroups.fetch.acknowledgements import decide
from proxy.sharegroups.model.group import member_id_mistake
from proxy.sharegroups.model.sessions import FINAL_EPOCH, SessionKey
from proxy.sharegroups.services import ShareServices
from proxy.wire import frames, messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicIdPartition

KEY = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS = (1, 2)


async def handle(call: Call[messages.ShareAcknowledgeRequest], services: ShareServices) -> bytes:
    """Answer one ShareAcknowledge."""
    request = call.message
    if request.group_id is None:
        return _refusal(call, ErrorCode.INVALID_REQUEST, "Group id must not be null.")
    places, batches = await named(request.topics, call.work)
    mistake = member_id_mistake(request.member_id)
    code = await read_refusal(call, services, request.group_id, () if mistake else places, batches)
    if code != ErrorCode.NONE:
        return _refusal(call, code)
    if mistake is not None:
        return _refusal(call, ErrorCode.INVALID_REQUEST, mistake)
    key = SessionKey(request.group_id, request.member_id or "", call.connection.node_id)
    session = services.coordinator.sessions.acknowledge(key, request.share_session_epoch, call.connection.id)
    if isinstance(session, ErrorCode):
        return _refusal(call, session)
    end_with_connection(call.connection, services)
    wanted = {place: batches.get(place, []) for place in places}
    renew_allowed = call.version >= 2 and request.is_renew_ack
    outcome = await decide(call, services, key, wanted, renew_allowed).outcome()
    if request.share_session_epoch == FINAL_EPOCH:
        end_session(services, key)
    return await _answer(call, services, request.group_id, outcome)


def _refusal(call: Call[messages.ShareAcknowledgeRequest], code: ErrorCode, text: str | None = None) -> bytes:
    message = messages.ShareAcknowledgeResponse
    return frames.response(KEY, call.version, call.correlation_id, message(error_code=code, error_message=text))


async def _answer(
    call: Call[messages.ShareAcknowledgeRequest],
    services: ShareServices,
    group_id: str,
    outcome: Mapping[TopicIdPartition, ErrorCode],
) -> bytes:
    message = messages.ShareAcknowledgeResponse
    topics: dict[bytes, list[messages.ShareAcknowledgeResponse.PartitionData]] = {}
    hints = []
    for place, code in outcome.items():
        hint = leader_hint(services, place, code)
        hints.append(hint)
        topics.setdefault(place.topic_id, []).append(
            message.PartitionData(
                partition_index=place.partition,
                error_code=code,
                current_leader=message.LeaderIdAndEpoch(leader_id=hint[0], leader_epoch=hint[1]),
            )
        )
        await call.work.step()
    answer = message(
        acquisition_lock_timeout_ms=round(services.coordinator.settings(group_id).lock_duration_s * 1000),
        responses=[
            message.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=hint_endpoints(services, message.NodeEndpoint, hints),
    )
    return await replied(call, answer)


async def interrupted(
    call: Call[messages.ShareAcknowledgeRequest], _reason: str
) -> messages.ShareAcknowledgeResponse | None:
    """What is said where nobody knows whether the acknowledgements are stored (sharegroups/README.md rule 72)."""
    message = messages.ShareAcknowledgeResponse

    def entry(partition: int) -> messages.ShareAcknowledgeResponse.PartitionData:
        return message.PartitionData(partition_index=partition, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    topics = await without_outcome(call.message.topics, entry, call.work)
    entries = [message.ShareAcknowledgeTopicResponse(topic_id=t, partitions=each) for t, each in topics.items()]
    return message(responses=entries) if entries else None


API = DeclaredApi(
    key=KEY,
    handle=handle,
    versions=VERSIONS,
    needs=Needs.OWNER,
    away=refusals.no_session,
    interrupted=interrupted,
    asks_again=True,
)
