"""Dependencies of the share group handlers: built once at start, and by tests from small parts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, fields
from typing import Any

from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.record_lookup import RecordLookup
from kafka_share_proxy.brokers.topic_leaders import TopicQueryOptions
from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.durable.interfaces import Journal
from kafka_share_proxy.fleet.group_owners import Fleet
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.deadline_timer import DeadlineTimer
from kafka_share_proxy.loop.interfaces import Timers, Workers
from kafka_share_proxy.loop.promise import PROCESS, CallbackOwner
from kafka_share_proxy.loop.workers import InlineWorkers
from kafka_share_proxy.reading.chunk_cache import CacheLimits, ChunkCache, ReadKey
from kafka_share_proxy.sharegroups.audit_events import ShareAudit
from kafka_share_proxy.sharegroups.counters import ShareFigures
from kafka_share_proxy.sharegroups.dead_letters.target_topics import TargetTopics
from kafka_share_proxy.sharegroups.dead_letters.writer import DeadLetterWriter
from kafka_share_proxy.sharegroups.fetch.head_reads import CHUNKS_PER_PARTITION, ShareChunk, ShareHead, ShareReads
from kafka_share_proxy.sharegroups.followed_group import FollowedGroup
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.sharegroups.settings import DeadLetters
from kafka_share_proxy.sharegroups.state.group_changes import ShareChanges
from kafka_share_proxy.sharegroups.state.state_records import StateKey, share_gate
from kafka_share_proxy.sharegroups.state.state_writes import ShareWrites
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions.messages import Message

FEATURE = "share groups"
"""Name on the links of a fleet."""


def no_ranges(_group_id: str, _metadata: str | None) -> bool:
    """Return False: individual commits are switched off."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions(TopicQueryOptions):
    """Options for serving share requests."""

    fetch_wait_s: float = 0.5
    """Maximum wait of one upstream Fetch in seconds. Longer waits need several (sharegroups/README.md rule 20)."""
    reservation_grace_s: float = 5.0
    """Maximum seconds that a reservation lasts beyond the wait of its Fetch (sharegroups/README.md rule 20)."""
    state_wait_s: float = 20.0
    """Maximum seconds that an administrator request waits for share state that is being loaded."""
    read_ahead_bytes: int = 4 << 20
    """Maximum bytes requested by one upstream Fetch. Records that are not acquired immediately stay in the cache."""
    idle_read_s: float = 0.1
    """Seconds between reads of a share partition without cached records while others of its session have some."""
    cache_age_s: float = 2.0
    """Maximum age of cached batches in seconds, so that deleted records and topics disappear from the cache."""
    renewal_bounds: tuple[RenewalBound, ...] = ()
    """Bounds on renewals, of which the first for a group applies. Without one they are unbounded, as in Kafka."""

    def renewal_bound(self, group_id: str) -> RenewalBound | None:
        return next((bound for bound in self.renewal_bounds if bound.holds_for(group_id)), None)


@dataclass(slots=True, kw_only=True)
class ShareServices(Services):
    """Dependencies of the share group handlers in addition to their `Call`. One per process."""

    coordinator: ShareCoordinator
    journal: Journal[StateKey]
    writes: ShareWrites
    changes: ShareChanges
    reads: ShareReads
    clock: DeadlineTimer
    """Timer of everything that expires: members, acquisition locks, cached batches."""
    figures: ShareFigures
    gate: StateGate = field(default_factory=share_gate)
    """Gate at which requests wait while share groups may not be served."""
    options: ShareOptions = field(default_factory=ShareOptions)
    workers: Workers = field(default_factory=InlineWorkers)
    audit: ShareAudit | None = None
    """None if audit is off, which is the default."""
    dead_letters: DeadLetterWriter | None = None
    """None if state is not in a topic: then there are no dead letters (sharegroups/README.md rule 94)."""
    fleet: Fleet | None = None
    """Other proxies that own groups; None if this one owns all or none."""
    at_brokers: dict[str, None] = field(default_factory=dict)
    """Groups that their owners in the fleet do not hold, until they are taken back."""
    followed: dict[str, FollowedGroup] = field(default_factory=dict)
    """Groups of the brokers that are being taken back."""
    has_ranges: Callable[[str, str | None], bool] = no_ranges
    """Returns True if a commit of a group with this metadata lists ranges of finished offsets (individual commits)."""

    @property
    def feature(self) -> str:
        return FEATURE

    @property
    def state_wait_s(self) -> float:
        return self.options.state_wait_s

    def holds(self, group_id: str) -> bool:
        """Return True if this proxy or another one holds a share group of that id."""
        return self.coordinator.group(group_id) is not None or (
            self.fleet is not None and group_id in self.fleet.groups
        )


ShareHandler = Callable[[Call[Any], ShareServices], Coroutine[Any, Any, ResponseFrame | Message | None]]
"""Handler that still takes its dependencies (see `forwarding.dispatch.declared_api.DeclaredApi.handle`)."""


def build(
    base: Services,
    *,
    coordinator: ShareCoordinator,
    options: ShareOptions,
    journal: Journal[StateKey],
    gate: StateGate | None = None,
    state_owner: CallbackOwner = PROCESS,
    audit: Audit | None = None,
    fleet: Fleet | None = None,
    has_ranges: Callable[[str, str | None], bool] = no_ranges,
    workers: Workers | None = None,
    dead_letters: DeadLetters | None = None,
) -> ShareServices:
    """Build the share group services from those of every feature.

    `state_owner`: see ShareWrites. `dead_letters`: settings. None: none are written.
    """
    limits, timers, notes = base.limits, base.timers, base.notes
    cache_limits = CacheLimits(limits.share_cache_bytes, options.cache_age_s, CHUNKS_PER_PARTITION)
    cache = ChunkCache[ShareChunk](cache_limits)
    reads = ShareReads(cache, _heads(coordinator, cache, base.topology, timers))
    figures = ShareFigures(limits.metrics_groups)
    gate = gate or share_gate()
    gate.on_closing = lambda _partitions: reads.end_waits(gate.is_closed)
    share_audit = None if audit is None else ShareAudit(audit, timers, coordinator)
    observe_write = figures.state_write_s.observe
    writes = ShareWrites(
        journal, coordinator, notes, timers.now, reads.wake, state_owner, audit=share_audit, observe_write=observe_write
    )

    def handle_deadlines(now: float) -> float:
        """Redeliver, expire and rest what is due. Return the time of the next call."""
        for key in coordinator.redeliver(now):
            reads.wake(key)
        expired = coordinator.expire(now)
        writes.write(expired, final=True)
        for key, transition in expired:
            figures.lock_timed_out(key.group_id, transition.changes)
            reads.wake(key)
        return min(coordinator.next_deadline(), cache.drop_aged(now), coordinator.rest_some(now))

    shared = {each.name: getattr(base, each.name) for each in fields(Services) if each.name != "options"}
    return ShareServices(
        **shared,
        coordinator=coordinator,
        journal=journal,
        writes=writes,
        changes=ShareChanges(coordinator, writes),
        reads=reads,
        clock=DeadlineTimer(timers, handle_deadlines),
        figures=figures,
        gate=gate,
        options=options,
        audit=share_audit,
        dead_letters=_letter_writer(base, coordinator, writes, figures, dead_letters),
        fleet=fleet,
        has_ranges=has_ranges,
        workers=workers or InlineWorkers(),
    )


def _letter_writer(
    base: Services,
    coordinator: ShareCoordinator,
    writes: ShareWrites,
    figures: ShareFigures,
    settings: DeadLetters | None,
) -> DeadLetterWriter | None:
    """Return the writer of dead letters, notified by the coordinator. None if they cannot be written with the state."""
    if settings is None or base.own is None or writes.transactions is None:
        return None
    topics = TargetTopics(base.own, base.topology, base.timers, settings)
    lookup = RecordLookup(base.own, base.topology, base.timers.now)
    writer = DeadLetterWriter(
        *(coordinator, writes, topics, lookup, base.timers, base.notes, figures),
        copies_headers=settings.copy_headers,
    )
    coordinator.on_dead_letters = writer.due
    return writer


def _heads(
    coordinator: ShareCoordinator, cache: ChunkCache[ShareChunk], topology: ClusterMetadata, timers: Timers
) -> Callable[[ShareKey], ShareHead]:
    """Return the function by which `ShareReads` looks up a share partition's next offset, and whether it is cached."""

    def head(key: ShareKey) -> ShareHead:
        share = coordinator.share(key)
        settings = coordinator.settings(key.group_id)
        offset = None if share is None else share.partition.acquirable_from(settings)
        if offset is None:
            return ShareHead(None, cached=False)
        leader = topology.leader(key.topic_id, key.partition)
        read_key = ReadKey(key.topic_id, key.partition, settings.read_committed)
        is_cached = leader is not None and cache.find_anywhere(read_key, offset, leader.epoch, timers.now())
        return ShareHead(offset, cached=is_cached)

    return head
