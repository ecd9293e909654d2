"""Requests about share groups between the proxies of a fleet: who serves them, and records that stay at the edge.

See `fleet.carried`. Of a Fetch the owner gets the batch headers; the answer it makes refers to the bytes, which are put
in here. Addresses in an answer become those of this proxy, since it is this one that the client knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from proxy.fleet.carried import Prepared
from proxy.fleet.group_owners import HeldGroup, Holdings
from proxy.forwarding.address_book import node_endpoints
from proxy.forwarding.apis import k32_broker_addresses
from proxy.forwarding.apis.k32_broker_addresses import DESCRIBE_CONFIGS
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import FramedHandler
from proxy.forwarding.services import Services
from proxy.reading.far_records import HeldRecords
from proxy.reading.upstream_fetch import FETCH, SMALL_PART
from proxy.sharegroups.services import ShareServices
from proxy.wire import frames, registry

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79


class ShareEdge:
    """See carried.EdgeOfLink."""

    def __init__(self, services: Services) -> None:
        self.held = HeldRecords(services.limits.share_cache_bytes)
        self._services = services

    def prepared(self, call: Call) -> Prepared:
        """Without room for records here it takes none, and is answered in the end (fleet/README.md rule 9)."""
        request, answers, now = call.message, self._services.answers, self._services.timers.now()
        if call.key != SHARE_FETCH or request.max_records <= 0:
            return Prepared(request, now)
        size = min(request.max_bytes, self._services.limits.local_answer_bytes)
        if answers.has_room(size):
            return Prepared(request, now)
        answers.reserve(size)  # refused, and counted as such
        fields = {name: getattr(request, name) for name in type(request).__slots__ if name != "unknown_tags"}
        return Prepared(type(request)(**fields | {"max_records": 0}), now + max(request.max_wait_ms, 0) / 1000)

    def completed(self, call: Call, frame: Any) -> bytes | None:
        """The answer with records and addresses of this proxy; None when records are not here any more."""
        if call.key not in (SHARE_FETCH, SHARE_ACKNOWLEDGE, DESCRIBE_CONFIGS):
            return bytes(frame)
        _, answer = frames.decode_response(call.key, call.version, memoryview(frame)[4:])
        if call.key == DESCRIBE_CONFIGS:  # of brokers named beside a group
            k32_broker_addresses.hide(answer, self._services.book)
            return frames.response(call.key, call.version, call.correlation_id, answer)
        if call.key == SHARE_FETCH and not self._put_in(answer):
            return None
        if answer.node_endpoints:
            message = registry.message(f"{registry.API_KEYS[call.key]}Response")
            nodes = [endpoint.node_id for endpoint in answer.node_endpoints]
            services = self._services
            answer.node_endpoints = node_endpoints(services.book, services.topology, message, nodes)
        return frames.response(call.key, call.version, call.correlation_id, answer)

    def _put_in(self, answer: Any) -> bool:
        """Bytes in place of references; whether they are all here."""
        for topic in answer.responses or ():
            for partition in topic.partitions:
                if partition.records is not None and len(partition.records):
                    partition.records = self.held.records_of(partition.records)
                    if partition.records is None:
                        return False
        return True

    def told(self, key: int, version: int, answer: memoryview) -> bytes | memoryview:
        """See carried.EdgeOfLink; records stay here."""
        if key != FETCH:
            return answer
        codec = registry.response(FETCH, version)
        decoded = codec.decode(answer)
        self.held.hold(decoded, len(answer) // SMALL_PART)
        return codec.encode(decoded)

    def forget(self, chunks: Iterable[int]) -> None:
        """See carried.EdgeOfLink."""
        self.held.forget(chunks)


class CarriedShareRequests:
    """See carried.CarriedRequests."""

    def __init__(self, services: ShareServices, handlers: Mapping[int, FramedHandler]) -> None:
        self._services = services
        self._handlers = handlers

    @property
    def handlers(self) -> Mapping[int, FramedHandler]:
        """See carried.CarriedRequests."""
        return self._handlers

    @property
    def groups(self) -> AbstractSet[str]:
        """See carried.CarriedRequests."""
        return self._services.coordinator.groups.keys()

    def holdings(self) -> Holdings:
        """See carried.CarriedRequests."""
        coordinator = self._services.coordinator
        groups = [HeldGroup(group_id, group.state) for group_id, group in sorted(coordinator.groups.items())]
        return Holdings(groups, list(coordinator.groups_with_settings()))

    def edge(self) -> ShareEdge:
        """See carried.CarriedRequests."""
        return ShareEdge(self._services)

    def link_ended(self, number: int) -> None:
        """See carried.CarriedRequests."""
        self._services.reads.cache.drop_holder(number)

    def links_changed(self) -> None:
        """See carried.CarriedRequests: whoever waits at the gate looks again."""
        self._services.gate.look()
