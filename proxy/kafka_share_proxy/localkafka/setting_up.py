"""Creation of topics and configuration of share groups for demonstrations."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_share_proxy.localkafka.connection import Connection, build
from kafka_share_proxy.wire.values import Address

CREATE_TOPICS, INCREMENTAL_ALTER_CONFIGS = 19, 44
GROUP_RESOURCE = 32
SET = 0
"""Operation of IncrementalAlterConfigs."""


class SettingUpError(Exception):
    """The broker or the proxy refused the request. The text names the reason."""


def connect(bootstrap: str) -> Connection:
    """Connect to the first of these servers, for tools."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    return Connection(Address(host, int(port)), "demo")


def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Create a topic with one replica. Raises SettingUpError, OSError."""
    new = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    with connect(bootstrap) as connection:
        created = connection.send_request(CREATE_TOPICS, 5, build("CreateTopicsRequest", topics=[new])).topics[0]
    if created.error_code:
        raise SettingUpError(f"cannot create topic {topic}: {created.error_message}")


def configure_group(bootstrap: str, group: str, settings: Mapping[str, str]) -> None:
    """Set configs of a share group, under Kafka's names. Raises SettingUpError, OSError."""
    configs = [{"name": name, "config_operation": SET, "value": value} for name, value in settings.items()]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    with connect(bootstrap) as connection:
        changes = build("IncrementalAlterConfigsRequest", resources=[resource])
        changed = connection.send_request(INCREMENTAL_ALTER_CONFIGS, 1, changes).responses[0]
    if changed.error_code:
        raise SettingUpError(f"cannot set {dict(settings)} of group {group}: {changed.error_message}")
