"""JoinGroup (key 11): views that a member subscribes to are created, then the request is forwarded.

A member names its topics in the metadata of each protocol (ConsumerProtocolSubscription.json: a version, then the
topics, the same in all versions). Metadata in another layout is left to the broker and the members.

JoinGroup does not report what forbids a view. Metadata does, with the name of the view (views/README.md rule 12).
With audit, the response is decoded and names the assignor of the group.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from kafka_share_proxy.forwarding.dispatch.chain import next_response
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import ByKnownGroup
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.audit_events import JoinedMember, ViewAudit
from kafka_share_proxy.views.model.names import PREFIX_BYTES, is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.JOIN_GROUP
CONSUMERS = "consumer"

_VERSION, _COUNT, _LENGTH = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">h")


async def handle(call: Call[messages.JoinGroupRequest], views: ViewServices) -> messages.JoinGroupResponse | None:
    request = call.message
    if request.protocol_type != CONSUMERS:
        return None
    names: dict[str, None] = {}
    for metadata in dict.fromkeys(bytes(protocol.metadata) for protocol in request.protocols or ()):
        if PREFIX_BYTES in metadata:
            for topic in _topics(metadata):
                if is_view(topic):
                    names[topic] = None
                await call.work.step()
    if not names:
        return None
    codes = await views.creation.ensure(call.connection, names, call.work)
    if views.reads.audit is None:
        return None
    ready = await call.work.select(lambda name: codes.get(name) == ErrorCode.NONE, names)
    return await _audited(call, views.reads.audit, ready)


async def _audited(
    call: Call[messages.JoinGroupRequest], audit: ViewAudit, views: Sequence[str]
) -> messages.JoinGroupResponse:
    request, response = call.message, await next_response(call)
    if response.error_code == ErrorCode.NONE:
        joined = JoinedMember(
            group=request.group_id,
            member=response.member_id,
            client=call.client_id,
            group_protocol="classic",
            assignor=response.protocol_name,
            offered=[protocol.name for protocol in request.protocols],
            members=len(response.members) or None,
        )
        audit.joined(joined, views)
    return response


def _topics(metadata: bytes) -> Iterator[str]:
    try:
        (count,) = _COUNT.unpack_from(metadata, _VERSION.size)
        at = _VERSION.size + _COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if not 0 <= length <= len(metadata) - at:
                return
            yield metadata[at : at + length].decode()
            at += length
    except (struct.error, UnicodeDecodeError):
        return


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: ByKnownGroup(NAMES_VIEW, groups=(), words=(PREFIX_BYTES,)))
