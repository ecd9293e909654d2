"""Rules for members of groups."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_share_proxy.conformance.judge.events import Inspection, ReceivedRequest
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.member_history import EPOCH_HEARTBEATS, LEAVE_EPOCHS
from kafka_share_proxy.conformance.judge.rule import ClientRules
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import error_name

GRACE_S = 0.5
"""Seconds after a new epoch within which the epoch before it may still be received."""
COMMITS = frozenset({ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT})
NO_EPOCH = -1
"""Epoch of a commit without membership."""
JOIN_EPOCH = 0

RULES = ClientRules()


@RULES.rule("member-epoch-wrong", "KIP-848; KIP-932", keys=frozenset(EPOCH_HEARTBEATS))
def _epoch(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A heartbeat has the member epoch of the last response."""
    request = event.request
    member = history.members.find(request.group_id, request.member_id)
    if member is None or not member.is_active or request.member_epoch in LEAVE_EPOCHS | {JOIN_EPOCH}:
        return
    if member.is_stale(request.member_epoch, event.at, GRACE_S):
        yield f"member epoch {request.member_epoch} instead of {member.epoch}"


@RULES.rule(
    "generation-wrong",
    "GroupMetadataManager.validateClassicGroupHeartbeat",
    keys=frozenset({ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP}),
)
def _generation(event: ReceivedRequest, history: History) -> Iterator[str]:
    """Heartbeat and SyncGroup have the generation of the last JoinGroup response."""
    request = event.request
    member = history.members.find(request.group_id, request.member_id)
    if member is not None and member.is_active and member.is_stale(request.generation_id, event.at, GRACE_S):
        yield f"{registry.API_KEYS[event.key]} with generation {request.generation_id} instead of {member.epoch}"


@RULES.rule("commit-of-stale-member", "OffsetMetadataManager.validateOffsetCommit; KIP-447", keys=COMMITS)
def _commit(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A member commits with its current epoch, and not after it has left."""
    request = event.request
    epoch = request.generation_id_or_member_epoch
    member = history.members.find(request.group_id, request.member_id)
    if member is None or epoch == NO_EPOCH:
        return
    if member.has_left:
        yield "a commit of a member that has left the group"
    elif member.is_active and member.is_stale(epoch, event.at, GRACE_S):
        yield f"a commit with epoch {epoch} instead of {member.epoch}"


@RULES.rule(
    "request-after-leaving",
    "KIP-848; KIP-932; AbstractCoordinator.maybeLeaveGroup",
    keys=frozenset({*EPOCH_HEARTBEATS, ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP}),
)
def _after_leaving(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A member that has left sends no heartbeat."""
    request = event.request
    member = history.members.find(request.group_id, request.member_id)
    if member is None or not member.has_left:
        return
    joins = getattr(request, "member_epoch", None) == JOIN_EPOCH
    leaves = getattr(request, "member_epoch", None) in LEAVE_EPOCHS
    if not (joins or leaves):
        yield f"{registry.API_KEYS[event.key]} of a member that has left the group"


@RULES.rule("leave-missing", "KIP-848; KIP-932; AbstractCoordinator.close", on=Inspection)
def _left_open(_: Inspection, history: History) -> Iterator[str]:
    """A dynamic member leaves its group before it closes its connections."""
    for member in history.members.members.values():
        is_absent = not any(number in history.connections for number in member.connections)
        if member.is_active and is_absent and not (member.is_static or member.doubtful):
            why = f"; {error_name(member.leave_error)} was its last attempt" if member.leave_error else ""
            name = f"member {member.member_id} of group {member.group_id}"
            yield f"{name} has closed its connections without leaving{why}"


@RULES.rule("member-id-ignored", "KIP-394", keys=frozenset({ApiKey.JOIN_GROUP}))
def _required_id(event: ReceivedRequest, history: History) -> Iterator[str]:
    """After MEMBER_ID_REQUIRED a member joins with the id of the response."""
    required = history.members.required.get((event.connection, event.request.group_id))
    if required is not None and event.request.member_id != required:
        yield f"JoinGroup with member id {event.request.member_id!r} instead of {required!r}"


@RULES.rule(
    "assignments-of-follower",
    "SyncGroupRequest.json; ConsumerCoordinator.onJoinFollower",
    keys=frozenset({ApiKey.SYNC_GROUP}),
)
def _assignments(event: ReceivedRequest, history: History) -> Iterator[str]:
    """Only the leader of a classic group sends assignments."""
    request = event.request
    member = history.members.find(request.group_id, request.member_id)
    if member is not None and member.is_active and not member.is_leader and request.assignments:
        yield f"{len(request.assignments)} assignments of a member that is not the leader"


@RULES.rule(
    "first-heartbeat-incomplete",
    "KIP-848; KIP-932; GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid",
    keys=frozenset(EPOCH_HEARTBEATS),
)
def _first_heartbeat(event: ReceivedRequest, _: History) -> Iterator[str]:
    """The heartbeat that joins has the whole state of the member."""
    request = event.request
    if request.member_epoch != JOIN_EPOCH:
        return
    topics = request.subscribed_topic_names is not None or getattr(request, "subscribed_topic_regex", None) is not None
    if not topics:
        yield "the first heartbeat has no subscription"
    if event.key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        if request.rebalance_timeout_ms < 0:
            yield f"the first heartbeat has the rebalance timeout {request.rebalance_timeout_ms}"
        if request.topic_partitions is None or request.topic_partitions:
            yield "the first heartbeat does not state that the member owns no partition"


@RULES.rule(
    "member-id-empty",
    "KIP-1082; KIP-932",
    keys=frozenset({*EPOCH_HEARTBEATS, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}),
)
def _member_id(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A member has an id: the client chooses it in share groups, and in consumer groups from v1."""
    needs_id = event.key != ApiKey.CONSUMER_GROUP_HEARTBEAT or event.version >= 1
    if needs_id and not event.request.member_id:
        yield "the member id is empty"
