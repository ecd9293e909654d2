"""Fetch v4-v15: served here if it names a view or carries a `KeyFilter`, otherwise forwarded unchanged.

Rules: views/README.md 19 to 30, 35 and 36. Up to v12 the bytes of a request are searched for the name prefix of views.
From v13 on the topic ids are compared with those known as plain. An incremental request without topics is forwarded
immediately. A session of the client that a full request replaces is closed upstream. Plain partitions are read with the
base partitions, and their records are passed on unchanged.

KIPs: 74, 98, 227, 320, 392, 516, 595. Skipped: v16 and later (forwarding/README.md rule 16).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.rights import Right
from kafka_share_proxy.brokers.topic_leaders import (
    judge_topic,
    names_to_query,
    on_topics,
    request_topics,
    topics_to_query,
)
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import ByIdOrTag, ByVersion, ContainsAny, EarlyMatch
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.forwarding.served.upstream_requests import reply
from kafka_share_proxy.loop.interfaces import WorkersBusy
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.upstream_fetch import PartitionResponse, RequestedPartition
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.fetch.fetching import ViewFetching
from kafka_share_proxy.views.fetch.key_filter import (
    REQUEST_BYTES_MAX,
    TAG_BYTES,
    TAGS_SINCE,
    BadFilter,
    applied_tag,
    content_in,
)
from kafka_share_proxy.views.fetch.targets import PlainTarget, Target, refusal
from kafka_share_proxy.views.fetch.view_chunks import Division
from kafka_share_proxy.views.kernel.filler import filler
from kafka_share_proxy.views.kernel.slicing import shorten
from kafka_share_proxy.views.model.catalog import View, ViewCatalog
from kafka_share_proxy.views.model.names import PREFIX_BYTES, is_view
from kafka_share_proxy.views.model.scanning import BaseScan, PlainScan, SlotScan
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID, TopicIdPartition

_FetchPartition: TypeAlias = "messages.FetchRequest.FetchPartition"

KEY = ApiKey.FETCH
IDS_SINCE, SESSIONS_SINCE, FLEXIBLE_SINCE = 13, 7, 12
FULL_EPOCHS = (0, -1)
"""Session epochs of full requests (KIP-227)."""

TOPICS_CHECKED_MAX = 10_000
"""Maximum number of topic ids that are compared before a request is decoded."""


# Selection of requests


def may_need_views(catalog: ViewCatalog) -> EarlyMatch:
    return ByVersion(
        {
            0: NAMES_VIEW,
            TAGS_SINCE: ContainsAny((PREFIX_BYTES, TAG_BYTES)),
            IDS_SINCE: ByIdOrTag(catalog.plain_ids, TOPICS_CHECKED_MAX),
        }
    )


# Handling


async def handle(call: Call[messages.FetchRequest], views: ViewServices) -> frames.ResponseFrame | None:
    make_known = _make_ids_known if call.version >= IDS_SINCE else _make_names_known
    refused = await make_known(call, views)
    requested = _ServedPartitions(call, views, refused, await _filters(call, views))
    if not requested.is_ours:
        return None
    if call.version >= SESSIONS_SINCE and call.message.session_epoch not in FULL_EPOCHS:
        message = messages.FetchResponse
        return reply(call, message(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    fetching = ViewFetching(call, views, requested.targets, requested.plains)
    try:
        await fetching.run()
        _count_figures(views, fetching, requested)
        _note_readers(call, views, requested)
        _report_audit(call, views, requested)
        return frames.response_frame(KEY, call.version, call.correlation_id, _response(call, fetching, requested))
    finally:
        fetching.release()


async def _make_ids_known(call: Call[messages.FetchRequest], views: ViewServices) -> dict[bytes | str, ErrorCode]:
    """Look up the topic ids, and return the errors by id."""
    topics, catalog = call.message.topics or (), views.catalog
    ids = {bytes(topic.topic_id) for topic in topics}
    unknown = [i for i in ids if i != ZERO_UUID and catalog.view(i) is None and not catalog.is_plain(i)]
    if unknown:
        await views.creation.resolve(call.connection, unknown, call.work)
    to_prepare = {
        view.name.topic
        for topic in topics
        if (view := catalog.view(bytes(topic.topic_id))) is not None and _needs_preparation(view, topic)
    }
    if to_prepare:
        await views.creation.ensure(call.connection, to_prepare, call.work)
    return {i: ErrorCode.UNKNOWN_TOPIC_ID for i in ids if catalog.view(i) is None and not catalog.is_plain(i)}


async def _make_names_known(call: Call[messages.FetchRequest], views: ViewServices) -> dict[bytes | str, ErrorCode]:
    """Create missing views, look up the topics with filters, and return the errors by name."""
    topics, catalog = call.message.topics or (), views.catalog
    missing = {
        topic.topic
        for topic in topics
        if is_view(topic.topic) and _needs_preparation(catalog.by_name(topic.topic), topic)
    }
    errors = await views.creation.ensure(call.connection, missing, call.work) if missing else {}
    filtered = [
        topic.topic for topic in topics if topic.topic not in missing and any(e.unknown_tags for e in topic.partitions)
    ]
    to_query = names_to_query(call.connection, views.services, filtered, Right.READ_TOPIC)
    if to_query:
        on_topics(call.connection, views.services, await request_topics(call.connection, to_query))
    return {
        name: errors.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for name in missing
        if catalog.by_name(name) is None
    }


_Filter = Division | BadFilter | ErrorCode
"""Parsed filter, or the reason why it is not applied."""


async def _filters(call: Call[messages.FetchRequest], views: ViewServices) -> dict[tuple[bytes | str, int], _Filter]:
    """Parse filters, except those of topics that the client may not read."""
    by_id, connection = call.version >= IDS_SINCE, call.connection
    fields: dict[tuple[bytes | str, int], bytes] = {}
    for topic in (call.message.topics or ()) if call.version >= TAGS_SINCE else ():
        name = bytes(topic.topic_id) if by_id else topic.topic
        fields |= {
            (name, each.partition): field for each in topic.partitions if (field := content_in(each)) is not None
        }
    if not fields:
        return {}
    if sum(map(len, fields.values())) > REQUEST_BYTES_MAX:
        return dict.fromkeys(
            fields, BadFilter(f"the KeyFilters of one request have more than {REQUEST_BYTES_MAX} bytes")
        )
    filters: dict[tuple[bytes | str, int], _Filter] = {}
    codes = await _rights(connection, views.services, {name for name, _ in fields})
    for place, content in fields.items():
        code = codes[place[0]]
        filters[place] = code if code != ErrorCode.NONE else await _filter(views, content, connection)
    return filters


async def _filter(views: ViewServices, content: bytes, connection: Connection) -> _Filter:
    try:
        return await views.filters.read(content, views.workers, connection.id)
    except BadFilter as error:
        return error
    except WorkersBusy:
        return ErrorCode.OFFSET_NOT_AVAILABLE  # clients retry


async def _rights(
    connection: Connection, services: Services, topics: Iterable[bytes | str]
) -> dict[bytes | str, ErrorCode]:
    """Return NONE for each topic, by id or name, that the client may READ, else the error."""
    ids = {each: each if isinstance(each, bytes) else _id_of(services, each) for each in topics}
    names, unknown = topics_to_query(connection, services, [TopicIdPartition(i, 0) for i in ids.values() if i])
    if names or unknown:
        on_topics(connection, services, await request_topics(connection, names, unknown))
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {each: judge_topic(connection, services, i)[1] if i else missing for each, i in ids.items()}


def _id_of(services: Services, name: str) -> bytes | None:
    topic = services.topology.topic(name)
    return None if topic is None else topic.topic_id


def _needs_preparation(view: View | None, topic: messages.FetchRequest.FetchTopic) -> bool:
    """True if the view is unknown, or the request names partitions that it did not have when it was last checked."""
    return view is None or any(entry.partition >= view.partitions for entry in topic.partitions)


@dataclass(slots=True, eq=False)
class _ServedPartition:
    """One requested partition: plain, or a slot of a base partition, or refused with `code`."""

    entry: _FetchPartition
    plain: PlainTarget | None = None
    target: Target | None = None
    slot: SlotScan | None = None
    code: ErrorCode = ErrorCode.NONE
    is_filtered: bool = False
    view: str | None = None
    """Name of the view. None for a filter."""
    view_id: bytes = ZERO_UUID


class _ServedPartitions:
    """All partitions of a request, and the base partitions to be read for them."""

    def __init__(
        self,
        call: Call[messages.FetchRequest],
        views: ViewServices,
        refused: Mapping[bytes | str, ErrorCode],
        filters: Mapping[tuple[bytes | str, int], _Filter],
    ) -> None:
        self._filters = filters
        self._call, self._services, self._catalog, self._refused = call, views.services, views.catalog, refused
        self._targets: dict[ReadKey, Target] = {}
        self.topics: list[tuple[bytes | str, list[_ServedPartition]]] = []
        """Partitions by topic, as in the request."""
        self.is_ours = bool(refused)
        """True if the request cannot be forwarded."""
        for topic in call.message.topics or ():
            name = bytes(topic.topic_id) if self._by_id else topic.topic
            entries = {entry.partition: entry for entry in topic.partitions}
            self.topics.append((name, [self._served_partition(name, entry) for entry in entries.values()]))

    @property
    def targets(self) -> list[Target]:
        return list(self._targets.values())

    @property
    def plains(self) -> list[PlainTarget]:
        return [served.plain for _, partitions in self.topics for served in partitions if served.plain is not None]

    def of_bases(self) -> Iterator[tuple[_ServedPartition, Target, SlotScan]]:
        """Yield the partitions that are served from base partitions."""
        for _, partitions in self.topics:
            for served in partitions:
                if served.target is not None and served.slot is not None:
                    yield served, served.target, served.slot

    @property
    def _by_id(self) -> bool:
        return self._call.version >= IDS_SINCE

    def _served_partition(self, name: bytes | str, entry: _FetchPartition) -> _ServedPartition:
        if name in self._refused:
            return _ServedPartition(entry, code=self._refused[name])
        view = self._catalog.by_name(name) if isinstance(name, str) else self._catalog.view(name)
        key_filter = self._filters.get((name, entry.partition))
        if isinstance(key_filter, BadFilter):
            return self._invalid_filter(entry, str(key_filter))
        if view is not None and key_filter is not None:
            return self._invalid_filter(entry, "KeyFilter on a view")
        if view is not None:
            return self._view_partition(view, entry)
        if isinstance(key_filter, ErrorCode):
            self.is_ours = True
            return _ServedPartition(entry, code=key_filter)
        if key_filter is not None:
            return self._filtered_partition(name, entry, key_filter)
        plain = PlainTarget(RequestedPartition(name, entry), PlainScan(), (name, entry.partition))
        return _ServedPartition(entry, plain=plain)

    def _invalid_filter(self, entry: _FetchPartition, reason: str) -> _ServedPartition:
        self.is_ours = True
        self._services.notes("key-filter-refused", reason=reason, client=self._call.connection.client_host)
        return _ServedPartition(entry, code=ErrorCode.INVALID_REQUEST)

    def _view_partition(self, view: View, entry: _FetchPartition) -> _ServedPartition:
        self.is_ours = True
        if not 0 <= entry.partition < view.partitions:
            return _ServedPartition(entry, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition, slot = view.place(entry.partition)
        division = Division(view.topic_id, view.cut)
        served = self._slot_partition(view.base_id, view.name.base, partition, slot, division, entry)
        served.view, served.view_id = view.name.topic, view.topic_id
        return served

    def _filtered_partition(self, name: bytes | str, entry: _FetchPartition, division: Division) -> _ServedPartition:
        self.is_ours = True
        topology = self._services.topology
        topic = topology.topic(name) if isinstance(name, str) else topology.topic_by_id(name)
        topic_id = topic.topic_id if topic is not None else name
        if not isinstance(topic_id, bytes):
            return _ServedPartition(entry, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        base = "" if topic is None else topic.name
        served = self._slot_partition(topic_id, base, entry.partition, 0, division, entry)
        served.is_filtered = True
        return served

    def _slot_partition(
        self, base_id: bytes, base: str, partition: int, slot: int, division: Division, entry: _FetchPartition
    ) -> _ServedPartition:
        key = ReadKey(base_id, partition, bool(self._call.message.isolation_level))
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = Target(key, base, BaseScan([]), {})
        scan = SlotScan(slot, entry.fetch_offset, entry.partition_max_bytes, entry.last_fetched_epoch)
        target.scan.slots.append(scan)
        target.scan.current_leader_epoch = max(target.scan.current_leader_epoch, entry.current_leader_epoch)
        target.divisions[scan] = division
        return _ServedPartition(entry, target=target, slot=scan)


# The response


def _response(
    call: Call[messages.FetchRequest], fetching: ViewFetching, requested: _ServedPartitions
) -> messages.FetchResponse:
    message = messages.FetchResponse
    if fetching.error_code:
        return message(throttle_time_ms=fetching.throttle_time_ms, error_code=fetching.error_code)
    committed = bool(call.message.isolation_level)
    responses = [
        _topic(name, [_entry(served, call.version, committed) for served in partitions])
        for name, partitions in requested.topics
    ]
    return message(throttle_time_ms=fetching.throttle_time_ms, responses=responses)


def _topic(name: bytes | str, partitions: list[PartitionResponse]) -> messages.FetchResponse.FetchableTopicResponse:
    if isinstance(name, bytes):
        return messages.FetchResponse.FetchableTopicResponse(topic_id=name, partitions=partitions)
    return messages.FetchResponse.FetchableTopicResponse(topic=name, partitions=partitions)


def _entry(served: _ServedPartition, version: int, committed: bool) -> PartitionResponse:
    index = served.entry.partition
    if served.plain is not None:
        return served.plain.response or _empty(index, committed)
    if served.target is None or served.slot is None:
        return _refused(refusal(served.code), index, version)
    refused = served.target.slot_refusals.get(served.slot) or served.target.refusal
    if refused is not None:
        return _refused(refused, index, version)
    log_offsets, slot = served.target.scan.log_offsets, served.slot
    entry = _empty(index, committed and not slot.error)
    if log_offsets is not None:
        entry.high_watermark, entry.last_stable_offset, entry.log_start_offset = log_offsets
    entry.error_code = slot.error
    entry.records = records_of(slot)
    if served.is_filtered and not slot.error:
        entry.unknown_tags = (applied_tag(slot.position),)
    return entry


def _empty(index: int, committed: bool) -> PartitionResponse:
    """Return an entry without records. Brokers list aborted transactions only for read_committed."""
    return messages.FetchResponse.PartitionData(
        partition_index=index, high_watermark=-1, aborted_transactions=[] if committed else None, records=b""
    )


def _refused(source: PartitionResponse, index: int, version: int) -> PartitionResponse:
    """Convert the broker's error entry of a base partition."""
    code = source.error_code
    if version < IDS_SINCE and code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    entry = _empty(index, committed=False)
    entry.error_code, entry.aborted_transactions = code, source.aborted_transactions
    entry.high_watermark, entry.last_stable_offset = source.high_watermark, source.last_stable_offset
    entry.log_start_offset = source.log_start_offset
    if version >= FLEXIBLE_SINCE:
        entry.diverging_epoch, entry.current_leader = source.diverging_epoch, source.current_leader
    return entry


def records_of(slot: SlotScan) -> frames.Pieces:
    """Return the batches of one slot, and the filler."""
    parts, gap = list(slot.parts), slot.gap
    if gap is not None:
        last = slot.cut_last_part_to
        if last is not None:
            parts[-1] = shorten(parts[-1], last)
        parts.append(filler(*gap))
    return frames.Pieces(parts)


def _count_figures(views: ViewServices, fetching: ViewFetching, requested: _ServedPartitions) -> None:
    figures = views.reads.figures
    figures.requests += 1
    figures.scanned_bytes += fetching.scan.scanned
    for target in requested.targets:
        figures.kept_bytes += sum(slot.bytes for slot in target.scan.slots)
        figures.kept_records += sum(slot.records for slot in target.scan.slots)


def _note_readers(call: Call[messages.FetchRequest], views: ViewServices, requested: _ServedPartitions) -> None:
    """Note the positions of the slots that were served, for lag."""
    now, connection_id = views.services.timers.now(), call.connection.id
    for served, target, slot in requested.of_bases():
        is_refused = bool(slot.error) or target.refusal is not None or slot in target.slot_refusals
        if served.view is not None and not is_refused:
            partition = served.view_id, served.entry.partition
            views.reads.readers.note(partition, connection_id, slot.fetch_offset, slot.records, slot.bytes, now)


def _report_audit(call: Call[messages.FetchRequest], views: ViewServices, requested: _ServedPartitions) -> None:
    audit = views.reads.audit
    if audit is None:
        return
    for served, target, slot in requested.of_bases():
        audit.responded(target.key, served.view, target.divisions[slot], slot, call.client_id)


API = DeclaredApi(
    key=KEY,
    handle=handle,
    wants=lambda views: may_need_views(views.catalog),
)
