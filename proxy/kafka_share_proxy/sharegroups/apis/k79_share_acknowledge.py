"""ShareAcknowledge v1-v2 (KIP-932; v2: RENEW, KIP-1222), served here.

- Epoch 0 is refused (123), -1 ends the session after its work (sharegroups/README.md rule 12).
- The response contains every partition of the request; a partition without batches succeeds.
- v2 returns the group's lock duration, so that the client learns a changed one with a renewal.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied
from kafka_share_proxy.sharegroups.apis import refusals
from kafka_share_proxy.sharegroups.apis.share_requests import (
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
from kafka_share_proxy.sharegroups.fetch.acknowledgements import decide
from kafka_share_proxy.sharegroups.model.sessions import FINAL_EPOCH, SessionKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

KEY = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS = (1, 2)


async def handle(call: Call[messages.ShareAcknowledgeRequest], services: ShareServices) -> bytes:
    request = call.message
    if request.group_id is None:
        return _refusal(call, ErrorCode.INVALID_REQUEST, "Group id must not be null.")
    partitions, batches = await partitions_in(request.topics, call.work)
    mistake = member_id_mistake(request.member_id)
    code, judged = await request_access(call, services, request.group_id, () if mistake else partitions, batches)
    if code != ErrorCode.NONE:
        return _refusal(call, code)
    if mistake is not None:
        return _refusal(call, ErrorCode.INVALID_REQUEST, mistake)
    key = SessionKey(request.group_id, request.member_id or "", call.connection.node_id)
    session = services.coordinator.sessions.acknowledge(key, request.share_session_epoch, call.connection.id)
    if isinstance(session, ErrorCode):
        return _refusal(call, session)
    end_with_connection(call.connection, services)
    batches_by_partition = {partition: batches.get(partition, AckBatches()) for partition in partitions}
    outcome = await decide(call, services, key, batches_by_partition, judged).outcome()
    if request.share_session_epoch == FINAL_EPOCH:
        end_session(services, key)
    return await _response(call, services, batches_by_partition, outcome)


def _refusal(call: Call[messages.ShareAcknowledgeRequest], code: ErrorCode, text: str | None = None) -> bytes:
    message = messages.ShareAcknowledgeResponse
    return frames.response(KEY, call.version, call.correlation_id, message(error_code=code, error_message=text))


async def _response(
    call: Call[messages.ShareAcknowledgeRequest],
    services: ShareServices,
    batches: Mapping[TopicIdPartition, AckBatches],
    outcome: Mapping[TopicIdPartition, ErrorCode],
) -> bytes:
    message = messages.ShareAcknowledgeResponse
    topics: dict[bytes, list[messages.ShareAcknowledgeResponse.PartitionData]] = {}
    hints = []
    group_id = call.message.group_id or ""
    for partition, code in outcome.items():
        hint = leader_hint(services, partition, code)
        hints.append(hint)
        topics.setdefault(partition.topic_id, []).append(
            message.PartitionData(
                partition_index=partition.partition,
                error_code=code,
                current_leader=message.LeaderIdAndEpoch(leader_id=hint[0], leader_epoch=hint[1]),
                unknown_tags=delay_tags(batches, partition, code),
            )
        )
        await call.work.step()
    response = message(
        acquisition_lock_timeout_ms=round(services.coordinator.settings(group_id).lock_duration_s * 1000),
        responses=[
            message.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=hint_endpoints(services, message.NodeEndpoint, hints),
    )
    return await replied(call, response)


async def interrupted(
    call: Call[messages.ShareAcknowledgeRequest], _reason: str
) -> messages.ShareAcknowledgeResponse | None:
    """Build the response for acknowledgements whose outcome is unknown (sharegroups/README.md rule 72)."""
    message = messages.ShareAcknowledgeResponse

    def entry(partition: int) -> messages.ShareAcknowledgeResponse.PartitionData:
        return message.PartitionData(partition_index=partition, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    topics = await without_outcome(call.message.topics, entry, message.ShareAcknowledgeTopicResponse, call.work)
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
