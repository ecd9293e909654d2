"""One manager alone: its requests, and its reaction to fabricated responses."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.consumer.groups.coordinator_requests import CoordinatorRequests
from kafka_share_proxy.consumer.groups.states import coordinator_trace
from kafka_share_proxy.consumer.metadata_requests import MetadataRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.wire.definitions import registry

from tests.consumer.messages import round_trip

NOW = 1000.0
OPTIONS = ConsumerOptions(group_id="g", auto_offset_reset="earliest")
LOST = RequestFailure(FailureKind.DISCONNECTED)
TIMED_OUT = RequestFailure(FailureKind.TIMED_OUT)
BARRED = RequestFailure(FailureKind.AUTHENTICATION, "no such user")


def backoff() -> RetryBackoff:
    return RetryBackoff(0.1, 1.0, lambda: 0.0)


def found_coordinator(node_id: int = 1) -> CoordinatorRequests:
    """Return the requests of a coordinator that is known."""
    manager = CoordinatorRequests("g", coordinator_trace(), backoff(), 30.0)
    manager.start(NOW)
    manager.find(NOW, "a test")
    respond(manager, only_request(manager), coordinators=[{"key": "g", "node_id": node_id, "host": "h", "port": 1}])
    return manager


def known_topics(**topics: int) -> MetadataRequests:
    """Return metadata of topics whose partitions are led by nodes 1 and 2 in turn, in epoch 5."""
    manager = MetadataRequests(OPTIONS, backoff())
    manager.watch(topics)
    on_topics(manager, only_request(manager), **topics)
    return manager


def on_topics(
    metadata: MetadataRequests, request: UnsentRequest, *, epoch: int = 5, now: float = NOW, **topics: int
) -> list[Any]:
    response = registry.message("MetadataResponse")
    listed = [
        response.MetadataResponseTopic(
            name=name,
            topic_id=f"{name:x<16}".encode(),
            error_code=0 if count else 3,
            partitions=[
                response.MetadataResponsePartition(partition_index=n, leader_id=1 + n % 2, leader_epoch=epoch)
                for n in range(count)
            ],
        )
        for name, count in topics.items()
    ]
    brokers = [response.MetadataResponseBroker(node_id=node, host="h", port=node) for node in (1, 2)]
    return metadata.on_response(request, response(brokers=brokers, topics=listed), now)


def only_request(manager: Any, now: float = NOW) -> UnsentRequest:
    """Return the only request that a manager sends. It must be valid in its lowest and its highest version."""
    (request,) = manager.poll(now).requests
    for version in request.versions:
        round_trip(request.message, version)
    return request


def no_request(manager: Any, now: float = NOW) -> float:
    """Check that a manager sends no request. Return the time of its next poll."""
    expected = manager.poll(now)
    assert expected.requests == ()
    return expected.wake_at


def respond(manager: Any, request: UnsentRequest, now: float = NOW, **fields: Any) -> list[Any]:
    """Respond with these fields; structures may be given as dicts. Return the events."""
    name = f"{request.api}Response"
    message = registry.message(name)
    response = message(**{key: _built(message, name, key, value) for key, value in fields.items()})
    return manager.on_response(request, round_trip(response, request.versions[1]), now)


def _built(message: Any, name: str, key: str, value: Any) -> Any:
    if not (isinstance(value, list) and value and isinstance(value[0], dict)):
        return value
    kinds = {
        ("FindCoordinatorResponse", "coordinators"): "Coordinator",
        ("JoinGroupResponse", "members"): "JoinGroupResponseMember",
    }
    return [getattr(message, kinds[name, key])(**each) for each in value]


def assign(
    member: Any, request: UnsentRequest, now: float = NOW, *, epoch: int, partitions: str | None = None,
    topic: str = "p", code: int = 0,
) -> list[Any]:  # fmt: skip
    """Respond to a heartbeat of member "m"; `partitions`: the digits of the assigned ones, None for no change."""
    response = registry.message(f"{request.api}Response")
    assignment = None
    if partitions is not None:
        listed = [response.TopicPartitions(topic_id=f"{topic:x<16}".encode(), partitions=[int(n) for n in partitions])]
        assignment = response.Assignment(topic_partitions=listed if partitions else [])
    message = response(
        error_code=code, member_id="m", member_epoch=epoch, heartbeat_interval_ms=5000, assignment=assignment
    )
    return member.on_response(request, round_trip(message, request.versions[1]), now)
