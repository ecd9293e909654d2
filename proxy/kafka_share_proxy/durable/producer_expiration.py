"""Intervals of writes to a state that keep brokers from forgetting its producer (durable/README.md rule 19)."""

from __future__ import annotations

from typing import NamedTuple

import trio

from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.brokers.queries import Resource, about_settings
from kafka_share_proxy.durable.state_producer import IDENTITY_S, KEEP_ALIVE_S
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.trio_waiting import until_settled
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

PRODUCER, TRANSACTIONAL = "producer.id.expiration.ms", "transactional.id.expiration.ms"
PERIOD_SHARE = 0.25
"""Fraction of the expiration time. Leaves room for a few failed attempts."""
RESPONSE_S = 5.0
"""Maximum seconds to wait for the response."""


class Periods(NamedTuple):
    """Seconds between two signs of life of a producer."""

    keep_alive_s: float = KEEP_ALIVE_S
    """Seconds between two appends."""
    identity_s: float = IDENTITY_S
    """Seconds between two InitProducerId requests."""


async def periods(own: ClusterQueries, node_id: int, notes: Notes) -> Periods:
    """Request the periods. Kafka's defaults count if the broker refuses (DESCRIBE_CONFIGS)."""
    request = about_settings(Resource.BROKER, str(node_id), [PRODUCER, TRANSACTIONAL])
    response = own.send_request(node_id, ApiKey.DESCRIBE_CONFIGS, request)
    try:
        with trio.fail_after(RESPONSE_S):
            await until_settled(response)
        return periods_from(response.result())
    except (ProxyError, trio.TooSlowError) as error:
        notes("state-expiration-not-known", reason=str(error) or "no response in time")
        return Periods()


def periods_from(response: messages.DescribeConfigsResponse) -> Periods:
    """Return the periods. Refused and missing settings count as Kafka's defaults."""
    values: dict[str, float] = {}
    for result in response.results or ():
        for entry in (result.configs or ()) if result.error_code == ErrorCode.NONE else ():
            text = entry.value or ""
            if text.isascii() and text.isdigit() and int(text):
                values[entry.name] = PERIOD_SHARE * int(text) / 1000
    return Periods(values.get(PRODUCER, KEEP_ALIVE_S), min(values.get(TRANSACTIONAL, IDENTITY_S), IDENTITY_S))
