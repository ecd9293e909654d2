"""Share groups that the brokers serve, as audit events: what can be told from requests and answers on their way.

Both are gathered whole anyway, for the addresses in the answers. Seen are deliveries and acknowledgements that the
broker took; what the broker does by itself is not: locks that run out, sessions that end, renewals. Where a request or
an answer cannot be read, it passes all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeAlias

from proxy.audit.events import BROKERS, Place
from proxy.audit.fetches import GivenRecords, Reader
from proxy.audit.stream import Audit
from proxy.forwarding.routes import Context, Rewrite, Route, Routes
from proxy.wire import frames, messages
from proxy.wire.api_key import ApiKey
from proxy.wire.batches import split_complete
from proxy.wire.errors import ErrorCode, ProxyError

KEYS = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
OUTCOMES = {0: "gap", 1: "accept", 2: "release", 3: "reject"}
"""By acknowledge type (KIP-932); 4 renews (KIP-1222), and ends nothing."""

_Request: TypeAlias = "messages.ShareFetchRequest | messages.ShareAcknowledgeRequest"
_Fetched: TypeAlias = "messages.ShareFetchResponse.PartitionData"
_Batch: TypeAlias = (
    "messages.ShareFetchRequest.AcknowledgementBatch | messages.ShareAcknowledgeRequest.AcknowledgementBatch"
)


class AskingMember(NamedTuple):
    """Who asks."""

    group: str
    member: str | None


def watched(routes: Routes, audit: Audit) -> Routes:
    """The same routes, which tell what passes of share groups."""
    found = Routes(routes.fallback)
    for route in routes.values():
        found.add(_watched(route, audit) if route.key in KEYS and route.rewrite is not None else route)
    return found


def _watched(route: Route, audit: Audit) -> Route:
    def amend(frame: memoryview) -> Route:
        treated = (None if route.amend is None else route.amend(frame)) or route
        try:
            _, request = frames.decode_request(frame)
        except ProxyError:
            return treated
        return replace(treated, rewrite=partial(_seen, audit, request, route.version, treated.rewrite))

    return replace(route, amend=amend)


def _seen(
    audit: Audit, request: _Request, version: int, rewrite: Rewrite | None, frame: memoryview, context: Context
) -> bytes | None:
    """Tell what an answer says, then treat it as ever."""
    try:
        _, answer = frames.decode_response(_key_of(request), version, frame)
    except ProxyError:
        answer = None
    if answer is not None and answer.error_code == ErrorCode.NONE:
        who = AskingMember(request.group_id or "", request.member_id)
        _tell_acknowledged(audit, who, request, answer)
        if isinstance(answer, messages.ShareFetchResponse):
            _tell_acquired(audit, who, answer)
    return None if rewrite is None else rewrite(frame, context)


def _key_of(request: _Request) -> ApiKey:
    return ApiKey.SHARE_FETCH if isinstance(request, messages.ShareFetchRequest) else ApiKey.SHARE_ACKNOWLEDGE


def _tell_acquired(audit: Audit, who: AskingMember, answer: messages.ShareFetchResponse) -> None:
    for topic in answer.responses or ():
        for partition in topic.partitions or ():
            if partition.error_code == ErrorCode.NONE and partition.acquired_records:
                _tell_delivery(audit, who, Place(bytes(topic.topic_id), partition.partition_index), partition, answer)


def _tell_delivery(
    audit: Audit, who: AskingMember, place: Place, partition: _Fetched, answer: messages.ShareFetchResponse
) -> None:
    data = memoryview(partition.records or b"")
    load, left = audit.loads.of(place), len(data)
    load.bytes += left
    for each in partition.acquired_records:
        values = (each.first_offset, each.last_offset, each.delivery_count, left, answer.acquisition_lock_timeout_ms)
        audit.offer("acquire", place, *who, (*values, BROKERS))
        load.rows += each.last_offset - each.first_offset + 1
        left = 0
    try:
        batches, _ = split_complete(data)
    except ProxyError:
        return
    if batches:
        audit.fetches.add(Reader("share", place, who.group), GivenRecords.all_of(batches))
        audit.keys.read(place, batches, data)


def _tell_acknowledged(
    audit: Audit,
    who: AskingMember,
    request: _Request,
    answer: messages.ShareFetchResponse | messages.ShareAcknowledgeResponse,
) -> None:
    refused = set(_refused(answer))
    for topic in request.topics or ():
        for partition in topic.partitions or ():
            place = Place(bytes(topic.topic_id), partition.partition_index)
            if place not in refused:
                for first, last, outcome in _outcomes(partition.acknowledgement_batches or ()):
                    audit.offer("settle", place, *who, (first, last, None, None, outcome, None, None, None, BROKERS))


def _refused(answer: messages.ShareFetchResponse | messages.ShareAcknowledgeResponse) -> Iterator[Place]:
    if isinstance(answer, messages.ShareFetchResponse):
        for topic in answer.responses or ():
            for fetched in topic.partitions or ():
                if fetched.acknowledge_error_code != ErrorCode.NONE:
                    yield Place(bytes(topic.topic_id), fetched.partition_index)
        return
    for acknowledged in answer.responses or ():
        for partition in acknowledged.partitions or ():
            if partition.error_code != ErrorCode.NONE:
                yield Place(bytes(acknowledged.topic_id), partition.partition_index)


def _outcomes(batches: Iterable[_Batch]) -> Iterator[tuple[int, int, str]]:
    """First and last offset of each run of one outcome; one type stands for all offsets of its batch."""
    for batch in batches:
        types = batch.acknowledge_types
        if len(types) == 1:
            if types[0] in OUTCOMES:
                yield batch.first_offset, batch.last_offset, OUTCOMES[types[0]]
            continue
        first = batch.first_offset
        for kind, run in groupby(types):
            last = first + sum(1 for _ in run) - 1
            if kind in OUTCOMES:
                yield first, last, OUTCOMES[kind]
            first = last + 1
