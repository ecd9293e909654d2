"""Share groups that the brokers serve, as audit events: what can be told from requests and answers on their way.

Both are gathered whole anyway, for the addresses in the answers. Seen are deliveries and acknowledgements that the
broker took; what the broker does by itself is not: locks that run out, sessions that end. Of a delivery that passed
here its settle tells all (`forwarding.forwarded_deliveries`), but for the start offset, which only the broker knows.
Where a request or an answer cannot be read, it passes all the same.

Theory of operation. A request that has come whole is shown to the `amend` of its route, which reads it and gives what
treats the answer; that reads the answer, tells, and then treats it as the route would have. What is added to loads and
fetches may be summed up until they are told. All of this is done by the C extension
`proxy.forwarding._forwarded_shares`, in one pass over the bytes, where it could be built; else with decoded messages by
the twin here. `KERNEL` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeAlias

from proxy.audit.events import BROKERS, Place
from proxy.audit.fetches import GivenRecords, Reader
from proxy.audit.stream import Audit
from proxy.forwarding.forwarded_deliveries import (
    DELIVERIES_MAX,
    DELIVERIES_OF_ONE_MAX,
    Delivery,
    ForwardedDeliveries,
    SharedPlace,
)
from proxy.forwarding.routes import Amend, Context, Rewrite, Route, Routes, Treatment
from proxy.wire import batches, headers, messages, prefixes, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.batches import BatchTable, split_complete
from proxy.wire.errors import ErrorCode, ProxyError
from proxy.wire.prefixes import PlaceOf

try:
    from proxy.forwarding import _forwarded_shares
except ImportError:  # no compiler was there when this was installed
    _forwarded_shares = None  # type: ignore[assignment]

BUILT_VERSION = 1
"""`VERSION` of the extension that belongs to this file: one left over from an older source is not used."""
KEYS = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
RANGE_MAX = (1 << 31) - 1
"""Offsets of one range; an answer with a longer one, or one that ends before it begins, is none of a broker."""
RENEW = 4
OUTCOMES = {0: "gap", 1: "accept", 2: "release", 3: "reject"}
"""By acknowledge type (KIP-932); RENEW (KIP-1222) ends nothing."""

_Request: TypeAlias = "messages.ShareFetchRequest | messages.ShareAcknowledgeRequest"
_Answer: TypeAlias = "messages.ShareFetchResponse | messages.ShareAcknowledgeResponse"
_Fetched: TypeAlias = "messages.ShareFetchResponse.PartitionData"
_Batch: TypeAlias = (
    "messages.ShareFetchRequest.AcknowledgementBatch | messages.ShareAcknowledgeRequest.AcknowledgementBatch"
)


Watching = Callable[[Audit], Callable[[Route], Amend]]
"""Makes of a route what its requests are shown to."""


class AskingMember(NamedTuple):
    """Who asks."""

    group: str
    member: str | None


def watched(routes: Routes, audit: Audit, watching: Watching | None = None) -> Routes:
    """The same routes, which tell what passes of share groups. `watching`: another way than by `KERNEL`."""
    watch = (watching or _watching)(audit)
    found = Routes(routes.fallback)
    for route in routes.values():
        is_watched = route.key in KEYS and route.rewrite is not None
        found.add(replace(route, amend=watch(route)) if is_watched else route)
    return found


# With the extension


class _Told:
    """What the extension has told to loads, fetches and key samples."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def look(self, place: Place, rows: bytes, data: memoryview, untold: int) -> None:
        """Keys of these batches are due to be looked at, by time and by records (see KeySampling)."""
        self._audit.keys.read(place, BatchTable(rows), data, untold)

    def add(
        self,
        place: Place,
        group: str,
        load: tuple[int, int, float],
        requests: int,
        given: tuple[int, int, int, int],
    ) -> None:
        """Rows, bytes and milliseconds of a share partition; what so many answers gave: first, last, rows, bytes."""
        rows, size, hold_ms = load
        if any(load):
            to = self._audit.loads.of(place)
            to.rows += rows
            to.bytes += size
            to.hold_ms += hold_ms
        if requests:
            first, last, count, read = given
            self._audit.fetches.add(
                Reader("share", place, group), GivenRecords(first, last, count, count, read, read), requests
            )


def _watching_in_c(audit: Audit) -> Callable[[Route], Amend]:
    told, kernel = _Told(audit), _forwarded_shares
    to = (audit.offer, audit.now, audit.wall_ms, batches.walk, audit.keys, told.look, told.add, Place)
    outcomes = tuple(OUTCOMES[kind] for kind in sorted(OUTCOMES))
    shares = kernel.Shares(*to, outcomes, BROKERS, DELIVERIES_MAX, DELIVERIES_OF_ONE_MAX)
    audit.on_sums.append(shares.flush)
    return lambda route: kernel.Watch(shares, route, route.rewrite, route.amend, route.key, route.version)


# The twin of the extension


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
        told = partial(shares.seen, request, key, version, treated.rewrite)
        return Route(kind=route.kind, key=key, version=version, rewrite=told)

    return amend


class _ForwardedShares:
    """Tells what passes."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._deliveries = ForwardedDeliveries(DELIVERIES_MAX, DELIVERIES_OF_ONE_MAX)

    def seen(
        self, request: _Request, key: int, version: int, rewrite: Rewrite | None, frame: memoryview, context: Context
    ) -> bytes | None:
        """Tell what an answer says, then treat it as ever."""
        try:
            answer = registry.response(key, version).decode(frame, headers.response_body_offset(key, version, frame))
        except ProxyError:
            answer = None
        if answer is not None and answer.error_code == ErrorCode.NONE and _is_possible(answer):
            who = AskingMember(request.group_id or "", request.member_id)
            self._tell_acknowledged(who, request, answer)
            if isinstance(answer, messages.ShareFetchResponse):
                self._tell_acquired(who, answer)
        return None if rewrite is None else rewrite(frame, context)

    def _tell_acquired(self, who: AskingMember, answer: messages.ShareFetchResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.NONE and partition.acquired_records:
                    place = Place(bytes(topic.topic_id), partition.partition_index)
                    self._tell_delivery(who, place, partition, answer.acquisition_lock_timeout_ms)

    def _tell_delivery(self, who: AskingMember, place: Place, partition: _Fetched, lock_ms: int) -> None:
        audit, now, share = self._audit, self._audit.now(), SharedPlace(who.group, place)
        data = memoryview(partition.records or b"")
        load, left = audit.loads.of(place), len(data)
        load.bytes += left
        for each in partition.acquired_records:
            first, last, attempt = each.first_offset, each.last_offset, each.delivery_count
            audit.offer("acquire", place, *who, (first, last, attempt, left, lock_ms, BROKERS))
            self._deliveries.acquired(share, Delivery(first, last, attempt, who.member, now, lock_ms / 1000))
            load.rows += last - first + 1
            left = 0
        try:
            found, _ = split_complete(data)
        except ProxyError:
            return
        if found:
            audit.fetches.add(Reader("share", place, who.group), GivenRecords.all_of(found))
            audit.keys.read(place, found, data)

    def _tell_acknowledged(self, who: AskingMember, request: _Request, answer: _Answer) -> None:
        refused: set[Place] | None = None
        for topic in request.topics:
            for partition in topic.partitions:
                if not partition.acknowledgement_batches:
                    continue
                refused = set(_refused(answer)) if refused is None else refused
                place = Place(bytes(topic.topic_id), partition.partition_index)
                if place not in refused:
                    for run in _runs(partition.acknowledgement_batches):
                        self._tell_run(who, place, *run)

    def _tell_run(self, who: AskingMember, place: Place, first: int, last: int, kind: int) -> None:
        """Offsets that were acknowledged in one way."""
        share, outcome = SharedPlace(who.group, place), OUTCOMES.get(kind)
        if first > last:
            return
        if kind == RENEW:
            self._deliveries.renewed(share, first, last, who.member)
        elif outcome is not None:
            for start, end, delivery in self._deliveries.settled(share, first, last, who.member):
                held = (None,) * 4 if delivery is None else self._held(place, delivery)
                attempt, acquired_ms, renewals, renew_ms = held
                values = (start, end, attempt, acquired_ms, outcome, renewals, renew_ms, None, BROKERS)
                self._audit.offer("settle", place, *who, values)

    def _held(self, place: Place, delivery: Delivery) -> tuple[int, int, int, int]:
        """Attempt, when it was acquired, renewals, and milliseconds beyond the first lock, of what ends now."""
        held_s = max(self._audit.now() - delivery.acquired_at, 0.0)
        self._audit.loads.of(place).hold_ms += held_s * 1000 * (delivery.last - delivery.first + 1)
        renew_ms = round(max(held_s - delivery.lock_s, 0.0) * 1000) if delivery.renewals else 0
        return delivery.attempt, self._audit.wall_ms() - round(held_s * 1000), delivery.renewals, renew_ms


def _is_possible(answer: _Answer) -> bool:
    if isinstance(answer, messages.ShareAcknowledgeResponse):
        return True
    partitions = (each for topic in answer.responses for each in topic.partitions)
    ranges = ((each.first_offset, each.last_offset) for found in partitions for each in found.acquired_records)
    return all(0 <= first <= last < first + RANGE_MAX for first, last in ranges)


def _refused(answer: _Answer) -> Iterator[Place]:
    if isinstance(answer, messages.ShareFetchResponse):
        for topic in answer.responses:
            for fetched in topic.partitions:
                if fetched.acknowledge_error_code != ErrorCode.NONE:
                    yield Place(bytes(topic.topic_id), fetched.partition_index)
        return
    for acknowledged in answer.responses:
        for partition in acknowledged.partitions:
            if partition.error_code != ErrorCode.NONE:
                yield Place(bytes(acknowledged.topic_id), partition.partition_index)


def _runs(acknowledged: Iterable[_Batch]) -> Iterator[tuple[int, int, int]]:
    """First and last offset of each run of one type, and the type; one type stands for all offsets of its batch."""
    for batch in acknowledged:
        types = batch.acknowledge_types
        if len(types) == 1:
            yield batch.first_offset, batch.last_offset, types[0]
            continue
        first = batch.first_offset
        for kind, run in groupby(types):
            last = first + sum(1 for _ in run) - 1
            yield first, last, kind
            first = last + 1


KERNEL = "c" if _forwarded_shares is not None and _forwarded_shares.VERSION == BUILT_VERSION else "python"
_watching: Watching = _watching_in_c if KERNEL == "c" else _watching_in_python
