"""Audit events of share groups that the brokers serve, derived from the forwarded bytes (audit/README.md rule 10).

The `amend` of a route reads a complete request and returns the treatment of the response, which reports the events and
then treats the response as the route would. The C extension `forwarding.observed._forwarded_shares` does this in one
pass over the bytes. Without it, the Python fallback here uses decoded messages. `KERNEL` names the one in use. What
cannot be read is forwarded all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeAlias

from kafka_share_proxy.audit.events import BROKERS, Place
from kafka_share_proxy.audit.fetches import GivenRecords, Reader
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.forwarding.dispatch.routes import Amend, Context, Rewrite, Route, Routes, Treatment
from kafka_share_proxy.forwarding.observed.forwarded_deliveries import (
    DELIVERIES_MAX,
    DELIVERIES_OF_ONE_MAX,
    Delivery,
    ForwardedDeliveries,
    SharedPlace,
)
from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.codec import headers, prefixes
from kafka_share_proxy.wire.codec.prefixes import PlaceOf
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.records import batches
from kafka_share_proxy.wire.records.batches import BatchTable, split_complete
from kafka_share_proxy.wire.values import TopicIdPartition

try:
    from kafka_share_proxy.forwarding.observed import _forwarded_shares
except ImportError:  # there was no compiler at installation
    _forwarded_shares = None  # type: ignore[assignment]

BUILT_VERSION = 2
"""`VERSION` of the extension that belongs to this file. An older one is not used."""
KEYS = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
OFFSET_MAX = (1 << 63) - 1
RANGE_MAX = (1 << 31) - 1
"""Maximum number of offsets in one range of a broker."""
RENEW = 4
OUTCOMES = {0: "gap", 1: "accept", 2: "release", 3: "reject"}
"""Outcomes by acknowledge type (KIP-932). RENEW (KIP-1222) is not an outcome."""

_Request: TypeAlias = "messages.ShareFetchRequest | messages.ShareAcknowledgeRequest"
_Response: TypeAlias = "messages.ShareFetchResponse | messages.ShareAcknowledgeResponse"
_Fetched: TypeAlias = "messages.ShareFetchResponse.PartitionData"
_Batch: TypeAlias = (
    "messages.ShareFetchRequest.AcknowledgementBatch | messages.ShareAcknowledgeRequest.AcknowledgementBatch"
)


Watching = Callable[[Audit], Callable[[Route], Amend]]


class HeartbeatSender(NamedTuple):
    """Group and member that sent a request."""

    group: str
    member: str | None


def watched(routes: Routes, audit: Audit, watching: Watching | None = None) -> Routes:
    """Add reporting to routes. `watching` replaces the choice of `KERNEL`."""
    watch = (watching or _watching)(audit)
    watched_routes = Routes(routes.fallback)
    for route in routes.values():
        is_watched = route.key in KEYS and route.rewrite is not None
        watched_routes.add(replace(route, amend=watch(route)) if is_watched else route)
    return watched_routes


# With the extension


class _Receiver:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def sample(self, place: Place, rows: bytes, data: memoryview, unreported: int) -> float:
        return self._audit.keys.read(place, BatchTable(rows), data, unreported)

    def add(
        self,
        place: Place,
        group: str,
        load: tuple[int, int, float],
        requests: int,
        response_content: tuple[int, int, int, int],
        unreported: int,
    ) -> None:
        """Add rows, bytes and milliseconds, and the content of `requests` responses.

        `response_content`: first offset, last offset, rows, bytes.
        """
        self._audit.keys.passed(place, unreported)
        rows, size, hold_ms = load
        if any(load):
            to = self._audit.loads.of(place)
            to.rows += rows
            to.bytes += size
            to.hold_ms += hold_ms
        if requests:
            first, last, count, read = response_content
            self._audit.fetches.add(
                Reader("share", place, group), GivenRecords(first, last, count, count, read, read), requests
            )


def _watching_in_c(audit: Audit) -> Callable[[Route], Amend]:
    receiver, kernel = _Receiver(audit), _forwarded_shares
    to = (audit.offer, audit.now, audit.wall_ms, batches.walk, receiver.sample, receiver.add, Place)
    outcomes = tuple(OUTCOMES[kind] for kind in sorted(OUTCOMES))
    shares = kernel.Shares(*to, outcomes, BROKERS, DELIVERIES_MAX, DELIVERIES_OF_ONE_MAX)
    audit.on_sums.append(shares.flush)
    return lambda route: kernel.Watch(shares, route, route.rewrite, route.amend, route.key, route.version)


# Python fallback of the extension


def _watching_in_python(audit: Audit) -> Callable[[Route], Amend]:
    return partial(_watch, _ForwardedShares(audit))


def _watch(shares: _ForwardedShares, route: Route) -> Amend:
    key, version, amended = route.key, route.version, route.amend
    body_at = prefixes.of_request(key, version, PlaceOf("GroupId"))
    decode = registry.request(key, version).decode

    def amend(frame: memoryview) -> Treatment:
        treated = (None if amended is None else amended(frame)) or route
        try:
            request = decode(frame, body_at(frame, len(frame)))
        except ProxyError:
            return treated
        report = partial(shares.report, request, key, version, treated.rewrite)
        return Route(kind=route.kind, key=key, version=version, rewrite=report)

    return amend


class _ForwardedShares:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._deliveries = ForwardedDeliveries(DELIVERIES_MAX, DELIVERIES_OF_ONE_MAX)

    def report(
        self, request: _Request, key: int, version: int, rewrite: Rewrite | None, frame: memoryview, context: Context
    ) -> bytes | None:
        """Report the events of a response, then treat it as the route would."""
        try:
            response = registry.response(key, version).decode(frame, headers.response_body_offset(key, version, frame))
        except ProxyError:
            response = None
        if response is not None and response.error_code == ErrorCode.NONE and _is_possible(response):
            sender = HeartbeatSender(request.group_id or "", request.member_id)
            self._report_acknowledged(sender, request, response)
            if isinstance(response, messages.ShareFetchResponse):
                self._report_acquired(sender, response)
        return None if rewrite is None else rewrite(frame, context)

    def _report_acquired(self, sender: HeartbeatSender, response: messages.ShareFetchResponse) -> None:
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.NONE and partition.acquired_records:
                    place = Place(bytes(topic.topic_id), partition.partition_index)
                    self._report_delivery(sender, place, partition, response.acquisition_lock_timeout_ms)

    def _report_delivery(self, sender: HeartbeatSender, place: Place, partition: _Fetched, lock_ms: int) -> None:
        audit, now, share = self._audit, self._audit.now(), SharedPlace(sender.group, place)
        data = memoryview(partition.records or b"")
        load, size = audit.loads.of(place), len(data)
        load.bytes += size
        for each in partition.acquired_records:
            first, last, attempt = each.first_offset, each.last_offset, each.delivery_count
            audit.offer("acquire", place, *sender, (first, last, attempt, size, lock_ms, BROKERS))
            self._deliveries.acquired(share, Delivery(first, last, attempt, sender.member, now, lock_ms / 1000))
            load.rows += last - first + 1
            size = 0
        try:
            batches, _ = split_complete(data)
        except ProxyError:
            return
        if batches:
            audit.fetches.add(Reader("share", place, sender.group), GivenRecords.all_of(batches))
            audit.keys.read(place, batches, data)

    def _report_acknowledged(self, sender: HeartbeatSender, request: _Request, response: _Response) -> None:
        refused: set[TopicIdPartition] | None = None
        for topic in request.topics:
            for partition in topic.partitions:
                if not partition.acknowledgement_batches:
                    continue
                refused = set(refused_partitions(response)) if refused is None else refused
                place = TopicIdPartition(bytes(topic.topic_id), partition.partition_index)
                if place not in refused:
                    for run in _runs(partition.acknowledgement_batches):
                        self._report_run(sender, Place(*place), *run)

    def _report_run(self, sender: HeartbeatSender, place: Place, first: int, last: int, kind: int) -> None:
        share, outcome = SharedPlace(sender.group, place), OUTCOMES.get(kind)
        if first > last:
            return
        if kind == RENEW:
            self._deliveries.renewed(share, first, last, sender.member)
        elif outcome is not None:
            for start, end, delivery in self._deliveries.settled(share, first, last, sender.member):
                held = (None,) * 4 if delivery is None else self._settled_delivery(place, delivery)
                attempt, acquired_ms, renewals, renew_ms = held
                values = (start, end, attempt, acquired_ms, outcome, renewals, renew_ms, None, BROKERS)
                self._audit.offer("settle", place, *sender, values)

    def _settled_delivery(self, place: Place, delivery: Delivery) -> tuple[int, int, int, int]:
        """Return attempt, acquisition time, renewals, and milliseconds beyond the first lock."""
        held_s = max(self._audit.now() - delivery.acquired_at, 0.0)
        self._audit.loads.of(place).hold_ms += held_s * 1000 * (delivery.last - delivery.first + 1)
        renew_ms = round(max(held_s - delivery.lock_s, 0.0) * 1000) if delivery.renewals else 0
        return delivery.attempt, self._audit.wall_ms() - round(held_s * 1000), delivery.renewals, renew_ms


def _is_possible(response: _Response) -> bool:
    if isinstance(response, messages.ShareAcknowledgeResponse):
        return True
    partitions = (each for topic in response.responses for each in topic.partitions)
    ranges = ((each.first_offset, each.last_offset) for partition in partitions for each in partition.acquired_records)
    return all(0 <= first <= last < first + RANGE_MAX for first, last in ranges)


def refused_partitions(response: _Response) -> Iterator[TopicIdPartition]:
    """Yield the partitions whose acknowledgements the broker refused."""
    if isinstance(response, messages.ShareFetchResponse):
        for topic in response.responses:
            for fetched in topic.partitions:
                if fetched.acknowledge_error_code != ErrorCode.NONE:
                    yield TopicIdPartition(bytes(topic.topic_id), fetched.partition_index)
        return
    for acknowledged in response.responses:
        for partition in acknowledged.partitions:
            if partition.error_code != ErrorCode.NONE:
                yield TopicIdPartition(bytes(acknowledged.topic_id), partition.partition_index)


def _runs(acknowledged: Iterable[_Batch]) -> Iterator[tuple[int, int, int]]:
    """Yield first offset, last offset and type of each run of one type."""
    for batch in acknowledged:
        types = batch.acknowledge_types
        if len(types) == 1:
            yield batch.first_offset, batch.last_offset, types[0]
            continue
        first = batch.first_offset
        if first > OFFSET_MAX - len(types):
            continue
        for kind, run in groupby(types):
            last = first + sum(1 for _ in run) - 1
            yield first, last, kind
            first = last + 1


KERNEL = kernels.choose("forwarding.observed._forwarded_shares", _forwarded_shares, BUILT_VERSION)
_watching: Watching = _watching_in_c if KERNEL == "c" else _watching_in_python
