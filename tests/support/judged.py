"""A client whose requests and responses are given to the judge one by one, without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from kafka_share_proxy.conformance.judge.events import ConnectionEnded, FrameRefused, ReceivedRequest, SentResponse
from kafka_share_proxy.conformance.judge.judge import Judge
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.records import records

OFFERED = {key: registry.versions(key) for key in registry.API_KEYS}
TOPIC_ID = bytes(range(16))
FIRST = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
"""Requests that need no ApiVersions before them."""
STEP_S = 0.01
"""Seconds between two requests."""


class JudgedClient:
    """One client with any number of connections. `violated_rules` has the ids of the rules that it violated."""

    def __init__(self) -> None:
        self.judge = Judge(OFFERED)
        self.at = 1_000.0
        self.violated_rules: set[str] = set()
        self._correlation_ids = count(1)
        self._connections: set[int] = set()

    def send(
        self,
        request: Any,
        response: Any = None,
        *,
        version: int | None = None,
        connection: int = 1,
        node: int = 1,
        delivered: bool = True,
        responds: bool = True,
        negotiates: bool = True,
        **frame_fields: Any,
    ) -> ReceivedRequest:
        """Send a request, after ApiVersions on a new connection, and receive the response: an empty one, or this."""
        key = type(request).SPEC.name.removesuffix("Request")
        api = next(each for each, name in registry.API_KEYS.items() if name == key)
        if (
            negotiates
            and connection not in self._connections
            and api not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
        ):
            self.send(versions_request(), connection=connection, node=node)
        self._connections.add(connection)
        version = OFFERED[api][1] if version is None else version
        event = ReceivedRequest(**self._frame(api, version, request, connection, node, frame_fields))
        self._observe(event)
        if responds:
            message = registry.response(api, version).message_class() if response is None else response
            self._observe(SentResponse(at=self.at, received=event, response=message, delivered=delivered))
        return event

    def refuse(self, key: int, version: int, reason: str = "the message ends too early") -> None:
        """Send what cannot be decoded or is not offered."""
        self.at += STEP_S
        self._observe(
            FrameRefused(
                at=self.at,
                received_at=self.at,
                connection=1,
                node=1,
                host="h",
                key=key,
                version=version,
                correlation_id=next(self._correlation_ids),
                client_id="c",
                frame=b"\0" * 8,
                reason=reason,
            )
        )

    def close(self, connection: int = 1, *, by_client: bool = True) -> None:
        """Close a connection, and let a second pass."""
        self._connections.discard(connection)
        self._observe(ConnectionEnded(at=self.at, connection=connection, by_client=by_client))
        self.at += 1

    def inspect(self) -> None:
        """Look for what is missing."""
        self.violated_rules |= {finding.rule.id for finding in self.judge.inspect(self.at)}

    def _frame(
        self, key: int, version: int, request: Any, connection: int, node: int, frame_fields: Any
    ) -> dict[str, Any]:
        self.at += STEP_S
        correlation_id = frame_fields.pop("correlation_id", None) or next(self._correlation_ids)
        client_id = frame_fields.pop("client_id", "c")
        return {
            "at": self.at,
            "received_at": self.at,
            "connection": connection,
            "node": node,
            "host": "h",
            "key": key,
            "version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
            "frame": frames.request(key, version, correlation_id, client_id, request)[4:],
            "request": request,
            **frame_fields,
        }

    def _observe(self, event: Any) -> None:
        self.violated_rules |= {finding.rule.id for finding in self.judge.observe(event)}


Steps = Callable[[JudgedClient], object]


def found_after(steps: Steps) -> set[str]:
    """Return the ids of the rules that a client violates with these steps."""
    client = JudgedClient()
    steps(client)
    client.inspect()
    return client.violated_rules


def versions_request(name: str = "client", version: str = "1.0") -> messages.ApiVersionsRequest:
    return messages.ApiVersionsRequest(client_software_name=name, client_software_version=version)


def batch(count: int = 1, *, producer: tuple[int, int, int] = (-1, -1, -1), transactional: bool = False) -> bytes:
    """Return a batch. `producer`: id, epoch and first sequence number."""
    batch_records = [records.Record(value=b"v", timestamp=0) for _ in range(count)]
    producer_id, epoch, sequence = producer
    return records.build_batch(
        0,
        batch_records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def produce(data: bytes, *, acks: int = -1, transaction: str | None = None, topic: str = "t") -> Any:
    """Return a Produce request of version 9 to 12 with one partition."""
    kinds = messages.ProduceRequest
    partition = kinds.PartitionProduceData(index=0, records=data)
    return kinds(
        transactional_id=transaction,
        acks=acks,
        timeout_ms=1000,
        topic_data=[kinds.TopicProduceData(name=topic, partition_data=[partition])],
    )


def produced(error: int = 0, topic: str = "t") -> Any:
    """Return the response for one partition."""
    kinds = messages.ProduceResponse
    partition = kinds.PartitionProduceResponse(index=0, error_code=error)
    return kinds(responses=[kinds.TopicProduceResponse(name=topic, partition_responses=[partition])])


def share_fetch(epoch: int, *batches: tuple[int, int, list[int]], **fields: Any) -> Any:
    """Return a ShareFetch of one partition. `batches`: first and last offset, and types."""
    kinds = messages.ShareFetchRequest
    listed = [kinds.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=t) for a, b, t in batches]
    partition = kinds.FetchPartition(partition_index=0, acknowledgement_batches=listed)
    topic = kinds.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])
    defaults = {"group_id": "g", "member_id": "m", "max_records": 10, "batch_size": 10, "max_wait_ms": 500}
    return kinds(share_session_epoch=epoch, topics=[topic], **{**defaults, **fields})


def share_fetched(first: int, last: int) -> Any:
    """Return a ShareFetch response with acquired offsets."""
    kinds = messages.ShareFetchResponse
    acquired = kinds.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)
    partition = kinds.PartitionData(partition_index=0, records=b"", acquired_records=[acquired])
    return kinds(responses=[kinds.ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])])


def share_acknowledge(epoch: int, *batches: tuple[int, int, list[int]], **fields: Any) -> Any:
    """Return a ShareAcknowledge of one partition."""
    kinds = messages.ShareAcknowledgeRequest
    listed = [kinds.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=t) for a, b, t in batches]
    partition = kinds.AcknowledgePartition(partition_index=0, acknowledgement_batches=listed)
    topic = kinds.AcknowledgeTopic(topic_id=TOPIC_ID, partitions=[partition])
    return kinds(group_id="g", member_id="m", share_session_epoch=epoch, topics=[topic], **fields)


def share_heartbeat(epoch: int, topics: list[str] | None = None) -> Any:
    return messages.ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=topics
    )


def share_heartbeat_response(epoch: int) -> Any:
    return messages.ShareGroupHeartbeatResponse(member_id="m", member_epoch=epoch, heartbeat_interval_ms=5000)
