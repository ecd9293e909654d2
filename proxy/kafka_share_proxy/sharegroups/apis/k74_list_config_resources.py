"""ListConfigResources (key 74): adds the groups that have settings here to the list. Versions: all.

The handler receives requests with resource types (v1, KIP-1142) if groups are among them, or if the brokers support
only v0, which lists only client metrics.

- The broker's refusal (DESCRIBE_CONFIGS on the cluster) is forwarded.
- Groups with `share.*` settings kept here follow, unless the broker lists them already. Admin tools then describe each
  (key 32).
- If the brokers support only v0, brokers and topics are listed from Metadata on the client's connection. A type that
  does not exist is refused (35), as by a broker.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.brokers.queries import about_all_topics, about_topics
from kafka_share_proxy.brokers.topic_leaders import METADATA_VERSION
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.dispatch.early_matches import FromVersion
from kafka_share_proxy.forwarding.rewriting.hidden_topics import is_hidden
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import (
    decode_response,
    replied,
    reply,
    send_request,
    send_upstream,
)
from kafka_share_proxy.sharegroups.apis.fleet_lists import held_elsewhere
from kafka_share_proxy.sharegroups.apis.group_configs import GROUP
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.LIST_CONFIG_RESOURCES
RESOURCE_TYPES_VERSION = 1
"""Version from which requests name resource types. Earlier ones list client metrics only."""

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
TYPES = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
"""Resource types that may be listed (ConfigResource.Type), in the order of a broker's response."""


async def handle(call: Call[messages.ListConfigResourcesRequest], services: ShareServices) -> bytes | None:
    requested_types = call.message.resource_types
    if services.versions.upstream.get(KEY, (0, 0))[1] < RESOURCE_TYPES_VERSION:
        response = await _list(call, requested_types or TYPES)
    elif requested_types and GROUP not in requested_types:
        return None
    else:
        response = await send_upstream(call, call.message)
    if response.error_code == ErrorCode.NONE and (not requested_types or GROUP in requested_types):
        elsewhere = await held_elsewhere(services)
        if elsewhere is None:
            message = messages.ListConfigResourcesResponse
            return reply(call, message(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, config_resources=[]))
        listed = {entry.resource_name for entry in response.config_resources if entry.resource_type == GROUP}
        proxy_groups = {name for holdings in elsewhere for name in holdings.with_settings}
        await call.work.pause()
        proxy_groups.update(services.coordinator.groups_with_settings())
        resource = messages.ListConfigResourcesResponse.ConfigResource
        missing = await call.work.map(
            lambda name: resource(resource_name=name, resource_type=GROUP), sorted(proxy_groups - listed)
        )
        response.config_resources = missing + response.config_resources
    return await replied(call, response)


def _resources(kind: int, names: Iterable[str]) -> list[messages.ListConfigResourcesResponse.ConfigResource]:
    resource = messages.ListConfigResourcesResponse.ConfigResource
    return [resource(resource_name=name, resource_type=kind) for name in names]


async def _list(
    call: Call[messages.ListConfigResourcesRequest], requested_types: Iterable[int]
) -> messages.ListConfigResourcesResponse:
    """List what a broker that supports v1 would list, except groups."""
    message = messages.ListConfigResourcesResponse
    kinds = set(requested_types)
    if not kinds <= set(TYPES):
        return message(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    metrics = send_request(call.connection, KEY, 0, messages.ListConfigResourcesRequest())
    cluster = None
    if kinds & {BROKER, BROKER_LOGGER, TOPIC}:
        query = about_all_topics() if TOPIC in kinds else about_topics()
        cluster = send_request(call.connection, ApiKey.METADATA, METADATA_VERSION, query)
    response = decode_response(messages.ListConfigResourcesResponse, 0, await metrics)
    if response.error_code != ErrorCode.NONE:
        return response
    resources = _resources(CLIENT_METRICS, [each.resource_name for each in response.config_resources])
    response.config_resources = resources if CLIENT_METRICS in kinds else []
    if cluster is not None:
        metadata = decode_response(messages.MetadataResponse, METADATA_VERSION, await cluster)
        nodes = [str(broker.node_id) for broker in metadata.brokers]
        for kind in (BROKER_LOGGER, BROKER):
            response.config_resources += _resources(kind, nodes if kind in kinds else [])
        shown = [topic.name for topic in metadata.topics if not topic.error_code and not is_hidden(topic.name)]
        response.config_resources += _resources(TOPIC, filter(None, shown))
    return response


async def _respond_unavailable(
    _call: Call[messages.ListConfigResourcesRequest], code: ErrorCode, _reason: str
) -> messages.ListConfigResourcesResponse:
    return messages.ListConfigResourcesResponse(error_code=code, config_resources=[])


API = DeclaredApi(
    key=KEY,
    handle=handle,
    raised_to=RESOURCE_TYPES_VERSION,
    wants=lambda _: FromVersion(RESOURCE_TYPES_VERSION),
    needs=Needs.ALL_LOADED,
    respond_unavailable=_respond_unavailable,
)
"""v1 lists groups that have settings (KIP-1142), which are kept here; older brokers know only client metrics (v0)."""
