"""The state of a cluster as JSON values, for tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kafka_share_proxy.conformance.target.faults import PlacedFault
from kafka_share_proxy.conformance.target.server import TargetServer
from kafka_share_proxy.conformance.target.topics import HostedTopic
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.topic_ids import topic_id_text


def state(server: TargetServer) -> dict[str, Any]:
    """Return clock, nodes, topics and faults."""
    cluster = server.cluster
    return {
        "cluster_id": cluster.cluster_id,
        "bootstrap": server.bootstrap,
        "clock": {"now_s": server.clock.now(), "wall_ms": server.clock.wall_ms(), "runs": server.clock.runs},
        "connections": server.connections,
        "nodes": [
            {
                "id": node_id,
                "host": host,
                "port": port,
                "up": cluster.is_up(node_id),
                "accepts": server.accepts(node_id),
            }
            for node_id, (host, port) in cluster.addresses.items()
        ],
        "topics": [_topic(topic) for topic in cluster.topics.by_name.values()],
        "faults": [fault(placed) for placed in server.faults],
        "failures": [repr(error) for error in server.failures],
    }


def fault(placed: PlacedFault) -> dict[str, Any]:
    """Return a fault with its counters. Defaults are left out."""
    shown = {
        spec.name: value for spec in fields(placed.fault) if (value := getattr(placed.fault, spec.name)) != spec.default
    }
    if placed.fault.api is not None:
        shown["api"] = registry.API_KEYS[placed.fault.api]
    if placed.fault.error is not None:
        shown["error"] = placed.fault.error.name
    return {"number": placed.number, "selected": placed.selected, "applied": placed.applied, **shown}


def _topic(topic: HostedTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic_id_text(topic.topic_id),
        "partitions": [
            {
                "partition": partition.index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "log_start": partition.log.start,
                "log_end": partition.log.end,
            }
            for partition in topic.partitions
        ],
    }
