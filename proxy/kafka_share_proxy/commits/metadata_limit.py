"""Maximum length of commit metadata at the brokers (`offset.metadata.max.bytes`; commits/README.md rule 29)."""

from __future__ import annotations

from contextlib import suppress

from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.loop.recurring import check_every
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

CONFIG = "offset.metadata.max.bytes"
DEFAULT = 4096
BROKER = 4
"""Resource type (ConfigResource.Type)."""
READ_EVERY_S = 60.0
"""Seconds between two readings. A broker reads its configuration when it starts."""
FIRST_AFTER_S = 1.0


class MetadataLimit:
    """Smallest limit of the brokers. Kafka's default counts until one shows its own (DESCRIBE_CONFIGS)."""

    def __init__(self) -> None:
        self.characters = DEFAULT

    def refused(self, services: Services, characters: int) -> None:
        """Lower the limit: a broker has refused metadata of this length."""
        self.characters = min(self.characters, characters // 2)
        services.notes("metadata-limit-lowered", refused=characters, characters=self.characters)

    def start(self, services: Services) -> None:
        """Read the limit soon and then periodically."""

        async def read() -> None:
            await self.read(services)

        def first() -> None:
            Task(read(), lambda _: None).start()

        services.timers.call_at(services.timers.now() + FIRST_AFTER_S, first)
        check_every(services.timers, READ_EVERY_S, read)

    async def read(self, services: Services) -> None:
        """Request the limits of all brokers. One that does not respond is left out."""
        own, limits = services.own, list[int]()
        if own is None:
            return
        for node_id in sorted(services.topology.brokers):
            with suppress(ProxyError):
                limits += limits_from(await own.send_request(node_id, ApiKey.DESCRIBE_CONFIGS, _about(node_id)))
        if limits:
            self.characters = min(limits)


def _about(node_id: int) -> messages.DescribeConfigsRequest:
    request = messages.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(node_id), configuration_keys=[CONFIG]
    )
    return request(resources=[resource])


def limits_from(response: messages.DescribeConfigsResponse) -> list[int]:
    """Return the limits that a broker shows."""
    return [
        int(text)
        for result in response.results or ()
        for entry in (result.configs or ())
        if result.error_code == ErrorCode.NONE
        and entry.name == CONFIG
        and (text := entry.value or "").isascii()
        and text.isdigit()
    ]
