"""Share group requests between the proxies of a fleet: which proxy serves them, and records that stay at the edge.

See `fleet.carried`. The owner receives only the batch headers of a Fetch. Its response refers to the record bytes, and
this proxy inserts them, and its own addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar

from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.fleet.carried import Prepared
from kafka_share_proxy.fleet.group_owners import HeldGroup, Holdings
from kafka_share_proxy.forwarding.apis import k32_broker_addresses
from kafka_share_proxy.forwarding.dispatch.routes import FramedHandler
from kafka_share_proxy.forwarding.rewriting.address_book import MakesEndpoint, node_endpoints
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.reading.far_records import HeldRecords
from kafka_share_proxy.reading.upstream_fetch import SMALL_PART
from kafka_share_proxy.sharegroups.placement import ShareChoice
from kafka_share_proxy.sharegroups.services import FEATURE, ShareServices
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.codec.compiler import Codec
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.message_classes import copied
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.records import order_keys
from kafka_share_proxy.wire.records.batches import BatchTable
from kafka_share_proxy.wire.records.order_keys import RecordKeys
from kafka_share_proxy.wire.values import ZERO_UUID

_Completed: TypeAlias = (
    "messages.ShareFetchResponse | messages.ShareAcknowledgeResponse | messages.DescribeConfigsResponse"
)
_NamesNode: TypeAlias = "messages.ShareFetchResponse.NodeEndpoint | messages.ShareAcknowledgeResponse.NodeEndpoint"
E = TypeVar("E")

KEYS_AT_ONCE_BYTES = 1 << 20
"""Bytes of a response above which its keys are read in the lane for large work."""


class ShareEdge:
    """See carried.EdgeOfLink."""

    def __init__(self, services: ShareServices) -> None:
        self.held = HeldRecords(services.limits.share_cache_bytes)
        self._services = services

    def prepared(self, call: Call[Message]) -> Prepared:
        """Return the request to send to the owner.

        If there is no room for records, it requests none, and the response is delayed until the end of the client's
        wait (fleet/README.md rule 9).
        """
        request, responses, now = call.message, self._services.responses, self._services.timers.now()
        if not isinstance(request, messages.ShareFetchRequest) or request.max_records <= 0:
            return Prepared(request, now)
        size = min(request.max_bytes, self._services.limits.local_answer_bytes)
        if responses.has_room(size):
            return Prepared(request, now)
        responses.reserve(size)  # is refused, which counts the refusal
        without_records = copied(request)
        without_records.max_records = 0
        return Prepared(without_records, now + max(request.max_wait_ms, 0) / 1000)

    def completed(self, call: Call[Message], frame: Buffer) -> bytes | None:
        """Return the response with records and addresses of this proxy. None if the records are no longer here."""
        if call.key not in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.DESCRIBE_CONFIGS):
            return bytes(frame)
        response: _Completed
        _, response = frames.decode_response(call.key, call.version, memoryview(frame)[4:])
        if isinstance(response, messages.DescribeConfigsResponse):  # may also name brokers
            k32_broker_addresses.hide(response, self._services.book)
            return frames.response(call.key, call.version, call.correlation_id, response)
        if isinstance(response, messages.ShareFetchResponse):
            if not self._insert_records(response):
                return None
            response.node_endpoints = self._own_endpoints(
                response.node_endpoints, messages.ShareFetchResponse.NodeEndpoint
            )
        else:
            entry = messages.ShareAcknowledgeResponse.NodeEndpoint
            response.node_endpoints = self._own_endpoints(response.node_endpoints, entry)
        return frames.response(call.key, call.version, call.correlation_id, response)

    def _own_endpoints(self, nodes_in_response: Iterable[_NamesNode], entry: MakesEndpoint[E]) -> list[E]:
        """Return the addresses of this proxy for the brokers in the owner's response."""
        services, nodes = self._services, [endpoint.node_id for endpoint in nodes_in_response]
        return node_endpoints(services.book, services.topology, entry, nodes) if nodes else []

    def _insert_records(self, response: messages.ShareFetchResponse) -> bool:
        """Replace references by bytes. Return True if all of them are here."""
        for topic in response.responses or ():
            for partition in topic.partitions:
                if partition.records is not None and len(partition.records):
                    partition.records = self.held.records_of(partition.records)
                    if partition.records is None:
                        return False
        return True

    def to_owner(
        self, key: int, version: int, request: bytes, response: memoryview
    ) -> bytes | memoryview | Promise[bytes]:
        """See carried.EdgeOfLink. Records stay here. Their keys are sent if the owner requests them."""
        if key != ApiKey.FETCH:
            return response
        codec = registry.codec_of(messages.FetchResponse, version)
        decoded = codec.decode(response)
        if not order_keys.is_requested(request):
            return self._held(codec, decoded, len(response))
        records_by_entry = _records_in(decoded)
        keys = self._services.workers.run(
            partial(_keys_of, records_by_entry), self, is_large=len(response) > KEYS_AT_ONCE_BYTES
        )
        response_for_owner: Promise[bytes] = Promise()

        def hold() -> None:
            try:
                response_for_owner.set(self._held(codec, decoded, len(response), keys.result()))
            except ProxyError as error:
                response_for_owner.fail(error)

        keys.on_settled(hold)
        return response_for_owner

    def _held(
        self,
        codec: Codec[messages.FetchResponse],
        decoded: messages.FetchResponse,
        size: int,
        keys: Mapping[int, RecordKeys] | None = None,
    ) -> bytes:
        report_keys = None if self._services.audit is None else self._report_keys
        self.held.hold(decoded, size // SMALL_PART, report_keys, keys)
        return codec.encode(decoded)

    def _report_keys(
        self,
        topic: messages.FetchResponse.FetchableTopicResponse,
        partition: int,
        batches: BatchTable,
        data: memoryview,
    ) -> None:
        """Pass the record keys to the audit here, since the owner does not have them (audit/README.md rule 6)."""
        known_topic = self._services.topology.topic(topic.topic) if topic.topic else None
        topic_id = bytes(topic.topic_id) if known_topic is None else known_topic.topic_id
        if self._services.audit is not None and topic_id != ZERO_UUID:
            self._services.audit.read_here(Place(topic_id, partition), batches, data)

    def forget(self, chunks: Iterable[int]) -> None:
        self.held.forget(chunks)


def _records_in(response: messages.FetchResponse) -> dict[int, memoryview]:
    """Return the records of each partition, by the id of its entry."""
    return {
        id(partition): memoryview(partition.records)
        for topic in response.responses or ()
        for partition in topic.partitions or ()
        if partition.records is not None and len(partition.records)
    }


def _keys_of(records_by_entry: Mapping[int, memoryview]) -> dict[int, RecordKeys]:
    """Return the keys of the records. A partition whose records cannot be read is left out."""
    keys: dict[int, RecordKeys] = {}
    for entry_id, records in records_by_entry.items():
        with suppress(ProxyError):
            keys[entry_id] = order_keys.keys_in(records, 0)
    return keys


class CarriedShareRequests:
    """See carried.CarriedRequests and carried.HoldsGroups."""

    feature = FEATURE

    def __init__(
        self, services: ShareServices, handlers: Mapping[int, FramedHandler], choice: ShareChoice | None = None
    ) -> None:
        self._services, self._choice = services, choice
        self._handlers = handlers

    @property
    def handlers(self) -> Mapping[int, FramedHandler]:
        return self._handlers

    def serve_with(self, handlers: Mapping[int, FramedHandler]) -> None:
        self._handlers = handlers

    @property
    def groups(self) -> AbstractSet[str]:
        return self._services.coordinator.groups.keys()

    def holdings(self) -> Holdings:
        coordinator = self._services.coordinator
        groups = [HeldGroup(group_id, group.state) for group_id, group in sorted(coordinator.groups.items())]
        return Holdings(groups, list(coordinator.groups_with_settings()))

    def knows(self, group_id: str) -> bool:
        """Return False if this proxy owns the group's state, and the brokers serve the group.

        True while the group is taken back: a proxy that does not follow its requests must not forward them
        (sharegroups/README.md rule 100).
        """
        services = self._services
        is_owner = services.gate.lets_in((services.gate.partition_of(group_id),))
        is_here = self._choice is None or self._choice.is_local(group_id) or group_id in services.followed
        return not is_owner or is_here

    def edge(self) -> ShareEdge:
        return ShareEdge(self._services)

    def link_ended(self, number: int) -> None:
        self._services.reads.cache.drop_holder(number)

    def links_changed(self) -> None:
        """See carried.CarriedRequests. Requests that wait at the gate check it again."""
        self._services.gate.wake()
