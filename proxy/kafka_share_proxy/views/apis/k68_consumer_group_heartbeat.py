"""ConsumerGroupHeartbeat (key 68): views that a member subscribes to are created, then the request is forwarded.

Behaviour
- A broker assigns nothing of a topic that does not exist, and librdkafka requests no Metadata before it joins. A
  pattern is evaluated by the broker (KIP-848), which sees the topics of views like any others.
- A view that the principal may not see or create: TOPIC_AUTHORIZATION_FAILED, as brokers return for topics that it may
  not DESCRIBE, with a text that names the missing right. One that the brokers refuse to create: INVALID_REQUEST with
  their text. One that is not ready in time: COORDINATOR_LOAD_IN_PROGRESS, after which clients send the whole request
  again.
- With audit, the response is decoded, and an accepted member is reported with its assignor.
- Other obstacles to a view (a base that does not exist, an invalid view name) are not reported here, because brokers
  accept names of topics that do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.forwarding.dispatch.chain import next_response
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.audit_events import JoinedMember, ViewAudit
from kafka_share_proxy.views.creation import ViewOutcome
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT


async def handle(
    call: Call[messages.ConsumerGroupHeartbeatRequest], views: ViewServices
) -> messages.ConsumerGroupHeartbeatResponse | None:
    subscribed = await call.work.select(is_view, call.message.subscribed_topic_names or ())
    names, _ = await views.creation.parse_names(subscribed, call.work)
    outcomes = await views.creation.prepare(call.connection, names, work=call.work)
    ready = []
    for topic, outcome in outcomes.items():
        await call.work.step()
        if outcome.code == ErrorCode.NONE:
            ready.append(topic)
        elif outcome.code not in _IGNORED_CODES:
            return _refusal(outcome)
    return await _audited(call, views.reads.audit, ready) if ready and views.reads.audit is not None else None


def _refusal(outcome: ViewOutcome) -> messages.ConsumerGroupHeartbeatResponse:
    code = _HEARTBEAT_CODES.get(outcome.code, ErrorCode.INVALID_REQUEST)
    name = outcome.name
    text = outcome.reason or f"view {name.topic}: the principal has no right to DESCRIBE it or its base {name.base}"
    return messages.ConsumerGroupHeartbeatResponse(error_code=code, error_message=text)


async def _audited(
    call: Call[messages.ConsumerGroupHeartbeatRequest], audit: ViewAudit, views: Sequence[str]
) -> messages.ConsumerGroupHeartbeatResponse:
    request, response = call.message, await next_response(call)
    if response.error_code == ErrorCode.NONE:
        assignor = request.server_assignor
        joined = JoinedMember(
            group=request.group_id,
            member=response.member_id or request.member_id,
            client=call.client_id,
            group_protocol="consumer",
            assignor=assignor,
            offered=[] if assignor is None else [assignor],
        )
        audit.joined(joined, views)
    return response


_IGNORED_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Codes of views that are ignored, as brokers ignore topics that do not exist."""
_HEARTBEAT_CODES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Code of the heartbeat by code of the view. All others become INVALID_REQUEST."""


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
