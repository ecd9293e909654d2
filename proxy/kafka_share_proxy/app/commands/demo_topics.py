"""Creation of topics and configuration of share groups for demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, closing

from kafka_share_proxy.pipeline.kafka.connection import BlockingConnection
from kafka_share_proxy.pipeline.source.options import Security
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import Address

GROUP_RESOURCE = 32
SET = 0
"""Operation of IncrementalAlterConfigs."""


class SettingUpError(ProxyError):
    """The broker or the proxy refused the request. The text names the reason."""


def connect(bootstrap: str) -> AbstractContextManager[BlockingConnection]:
    """Connect to the first of these servers. Raises UpstreamLost."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    return closing(BlockingConnection(Address(host, int(port)), Security(), "demo"))


def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Create a topic with one replica. Raises SettingUpError, UpstreamLost."""
    request = messages.CreateTopicsRequest
    new = request.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    with connect(bootstrap) as connection:
        (created,) = connection.send_request(ApiKey.CREATE_TOPICS, request(topics=[new]), 5).topics
    if created.error_code:
        raise SettingUpError(f"cannot create topic {topic}: {created.error_message}")


def configure_group(bootstrap: str, group: str, settings: Mapping[str, str]) -> None:
    """Set configs of a share group, under Kafka's names. Raises SettingUpError, UpstreamLost."""
    request = messages.IncrementalAlterConfigsRequest
    configs = [
        request.AlterableConfig(name=name, config_operation=SET, value=value) for name, value in settings.items()
    ]
    resource = request.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    with connect(bootstrap) as connection:
        changes = request(resources=[resource])
        (changed,) = connection.send_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, changes, 1).responses
    if changed.error_code:
        raise SettingUpError(f"cannot set {dict(settings)} of group {group}: {changed.error_message}")
