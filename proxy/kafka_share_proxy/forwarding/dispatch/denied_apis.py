"""APIs that the settings deny: hidden in ApiVersions, and refused with the error of a missing right.

Source: our decision, with the error codes that brokers return to a client without the right (KafkaApis, 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from kafka_share_proxy.forwarding.dispatch.offered_versions import client_facing
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.refused_responses import refused_response
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode, RequestRefused

NEEDED = frozenset({ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""APIs without which no client works. They cannot be denied."""
READING = frozenset(
    {
        *NEEDED,
        *(ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.FIND_COORDINATOR),
        *(ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT),
        *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH),
        *(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
        *(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    }
)
"""APIs of consumers. `apis.read_only` allows these and all whose names begin with `DESCRIBING`."""
DESCRIBING = ("Describe", "List", "ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe")

_GROUP_APIS = ("Group", "OffsetCommit", "OffsetFetch", "OffsetDelete", "Heartbeat", "ShareFetch", "ShareAcknowledge")
_TRANSACTION_APIS = ("Txn", "Transactions", "InitProducerId")
_OF_THE_CLUSTER = (ApiKey.LIST_TRANSACTIONS, ApiKey.WRITE_TXN_MARKERS)
_TOPIC_APIS = ("Produce", "Fetch", "ListOffsets", "Topic", "DeleteRecords", "CreatePartitions", "OffsetForLeaderEpoch")


def keys_of(names: Iterable[str], *, read_only: bool) -> frozenset[int]:
    """Return the API keys to deny.

    Raises:
        ValueError: a name is no API of clients, or no client works without the API.
    """
    by_name = {registry.API_KEYS[key]: key for key in client_facing()}
    denied = set()
    for name in names:
        if name not in by_name:
            import difflib  # needed after a mistake only, and an idle proxy should be small

            near = difflib.get_close_matches(name, by_name, n=1)
            raise ValueError(f"there is no API {name}" + (f"; did you mean {near[0]}?" if near else ""))
        if by_name[name] in NEEDED:
            raise ValueError(f"no client works without {name}")
        denied.add(by_name[name])
    if read_only:
        denied |= {key for name, key in by_name.items() if key not in READING and not name.startswith(DESCRIBING)}
    return frozenset(denied)


def code_of(key: int) -> ErrorCode:
    """Return the code that brokers return to a client without the right that the API needs."""
    name = registry.API_KEYS[key]
    if any(part in name for part in _TRANSACTION_APIS) and key not in _OF_THE_CLUSTER:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if any(part in name for part in _GROUP_APIS):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if any(part in name for part in _TOPIC_APIS):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def denied_route(key: int, version: int) -> Route:
    text = f"The settings of the proxy deny {registry.API_KEYS[key]} (apis)."
    return Route(kind=Kind.LOCAL, key=key, version=version, handler=partial(_refuse, code=code_of(key), text=text))


async def _refuse(call: Call[Any], *, code: ErrorCode, text: str) -> Message:
    """Return the refusal. A Produce without a response ends the connection, as at a broker (handleProduceRequest)."""
    if call.key == ApiKey.PRODUCE and call.message.acks == 0:
        raise RequestRefused(text)
    return refused_response(call.key, call.version, call.message, code, text)
