"""ListConfigResources (KIP-1142): topics and groups with settings, and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.config_resources import ResourceType
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

CLIENT_METRICS, BROKER_LOGGER = 16, 8
LISTS: Mapping[int, Callable[[TargetCluster], list[str]]] = {
    ResourceType.TOPIC: lambda cluster: sorted(cluster.topics.by_name),
    ResourceType.BROKER: lambda cluster: [str(node_id) for node_id in cluster.nodes_up],
    BROKER_LOGGER: lambda cluster: [str(node_id) for node_id in cluster.nodes_up],
    CLIENT_METRICS: lambda _: [],
    ResourceType.GROUP: lambda cluster: cluster.group_configs.with_settings(),
}
"""Names by resource type. There are no resources of client metrics."""


async def handle(call: TargetCall[messages.ListConfigResourcesRequest]) -> messages.ListConfigResourcesResponse:
    """List the resources of the types. Version 0 lists those of client metrics."""
    response = messages.ListConfigResourcesResponse
    types = [CLIENT_METRICS] if call.version == 0 else call.request.resource_types or list(LISTS)
    if any(each not in LISTS for each in types):
        return response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return response(
        config_resources=[
            response.ConfigResource(resource_name=name, resource_type=each)
            for each in types
            for name in LISTS[each](call.cluster)
        ]
    )
