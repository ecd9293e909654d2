"""What the handlers of share groups are given: built once at start, by tests from small parts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from proxy.brokers.cluster_view import ClusterView
from proxy.brokers.topic_leaders import AskingOptions
from proxy.durable.gate import StateGate
from proxy.durable.interfaces import Journal
from proxy.fleet.group_owners import Fleet
from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.interfaces import Call
from proxy.forwarding.memory_budget import AnswerBudget
from proxy.forwarding.offered_versions import EffectiveVersions
from proxy.forwarding.services import Services
from proxy.loop.interfaces import Notes, Timers
from proxy.loop.promise import PROCESS, CallbackOwner
from proxy.loop.slices import Slices
from proxy.reading.chunk_cache import CacheLimits, ChunkCache, ReadKey
from proxy.sharegroups.audit_events import ShareAudit
from proxy.sharegroups.counters import ShareFigures
from proxy.sharegroups.expiry_clock import ShareClock
from proxy.sharegroups.fetch.head_reads import ShareHead, ShareReads
from proxy.sharegroups.fetch.share_chunk import CHUNKS_PER_PARTITION, ShareChunk
from proxy.sharegroups.group_changes import ShareChanges
from proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from proxy.sharegroups.model.renewal import RenewalBound
from proxy.sharegroups.model.settings import BrokerShareLimits
from proxy.sharegroups.state_records import StateKey, share_gate
from proxy.sharegroups.state_writes import ShareWrites
from proxy.wire.frames import Answer
from proxy.wire.messages import Message
from proxy.wire.values import Limits

FEATURE = "share groups"
"""What links of a fleet call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions(AskingOptions):
    """How share requests are served."""

    fetch_wait_s: float = 0.5
    """Longest wait of one upstream Fetch; a client's longer wait is made of several (sharegroups/README.md rule 20)."""
    reservation_grace_s: float = 5.0
    """A reservation ends this long after the wait of its Fetch at the latest (sharegroups/README.md rule 20)."""
    state_wait_s: float = 20.0
    """A tool's request waits so long for share state that is being loaded."""
    read_ahead_bytes: int = 4 << 20
    """Records asked for in one upstream Fetch; what is not acquired at once stays in the cache."""
    idle_read_s: float = 0.1
    """A share partition that has nothing in the cache is read this often while others of its session have something."""
    cache_age_s: float = 2.0
    """Cached batches older than this are read again, so that deleted records and topics do not live on here."""
    renewal_bounds: tuple[RenewalBound, ...] = ()
    """Of these the first that holds for a group bounds its renewals; none, and they are unbounded, as in Kafka."""

    def renewal_bound(self, group_id: str) -> RenewalBound | None:
        """What bounds the renewals of a group."""
        return next((bound for bound in self.renewal_bounds if bound.holds_for(group_id)), None)


@dataclass(slots=True, kw_only=True)
class ShareServices(Services):
    """What the handlers of share groups may use beyond their `Call`. One per process."""

    coordinator: ShareCoordinator
    journal: Journal[StateKey]
    writes: ShareWrites
    """Decided changes on their way through the journal: one append at a time."""
    changes: ShareChanges
    """Changes of groups and settings under way."""
    reads: ShareReads
    """Cache of batches just read, reservations, waiting ShareFetches."""
    clock: ShareClock
    """Rings when members, locks or cached batches end."""
    figures: ShareFigures
    """What a broker counts of share groups."""
    gate: StateGate = field(default_factory=share_gate)
    """Whether share groups may be served at this moment."""
    serve_share: bool
    """Share groups are served here, else keys 76-79 are forwarded; set at start (sharegroups/README.md rule 1)."""
    options: ShareOptions = field(default_factory=ShareOptions)
    audit: ShareAudit | None = None
    """Told what happens to deliveries; None where audit is off, which is the default."""
    fleet: Fleet | None = None
    """Other proxies that own groups; None where this one owns all or none."""
    has_ranges: Callable[[str, str | None], bool] = lambda _group_id, _metadata: False
    """Whether a commit of a group with this metadata says which ranges of offsets are done (individual commits)."""

    @property
    def feature(self) -> str:
        """See owner_routing.OwnedServices."""
        return FEATURE

    @property
    def state_wait_s(self) -> float:
        """See owner_routing.OwnedServices."""
        return self.options.state_wait_s

    def holds(self, group_id: str) -> bool:
        """Whether a share group is held, here or by another proxy."""
        return self.coordinator.group(group_id) is not None or (
            self.fleet is not None and group_id in self.fleet.groups
        )


ShareHandler = Callable[[Call[Any], ShareServices], Coroutine[Any, Any, Answer | Message | None]]
"""A handler before it has what it is given: see `forwarding.declared_api.DeclaredApi.handle`."""


def build(
    *,
    limits: Limits,
    share_limits: BrokerShareLimits,
    options: ShareOptions,
    timers: Timers,
    notes: Notes,
    book: AddressBook,
    topology: ClusterView,
    versions: EffectiveVersions,
    journal: Journal[StateKey],
    serve_share: bool,
    state_owner: CallbackOwner = PROCESS,
) -> ShareServices:
    """Put the parts of share groups together with those given. `state_owner`: see ShareWrites."""
    coordinator = ShareCoordinator(share_limits)
    cache_limits = CacheLimits(limits.share_cache_bytes, options.cache_age_s, CHUNKS_PER_PARTITION)
    cache = ChunkCache[ShareChunk](cache_limits)

    reads = ShareReads(cache, _heads(coordinator, cache, topology, timers))
    figures = ShareFigures(limits.metrics_groups)
    writes = ShareWrites(journal, coordinator, notes, timers.now, reads.wake, state_owner)
    writes.took = figures.state_write_s.observe

    def due(now: float) -> float:
        expired = coordinator.expire(now)
        writes.write(expired, final=True)
        for key, transition in expired:
            figures.lock_timed_out(key.group_id, transition.changes)
            reads.wake(key)
        return min(coordinator.next_deadline(), cache.drop_aged(now), coordinator.rest_some(now))

    return ShareServices(
        limits=limits,
        timers=timers,
        notes=notes,
        book=book,
        topology=topology,
        versions=versions,
        coordinator=coordinator,
        journal=journal,
        writes=writes,
        changes=ShareChanges(coordinator, writes),
        reads=reads,
        answers=AnswerBudget(limits.local_answers_total_bytes),
        clock=ShareClock(timers, due),
        slices=Slices(timers),
        figures=figures,
        serve_share=serve_share,
        options=options,
    )


def _heads(
    coordinator: ShareCoordinator, cache: ChunkCache[ShareChunk], topology: ClusterView, timers: Timers
) -> Callable[[ShareKey], ShareHead]:
    """What `ShareReads` asks of a share partition: where it would be read, and whether that is in the cache."""

    def head(key: ShareKey) -> ShareHead:
        share = coordinator.share(key)
        settings = coordinator.settings(key.group_id)
        if share is None or not share.partition.can_acquire(settings):
            return ShareHead(None, cached=False)
        offset = share.partition.next_fetch_offset()
        leader = topology.leader(key.topic_id, key.partition)
        place = ReadKey(key.topic_id, key.partition, settings.read_committed)
        found = leader is not None and cache.find_anywhere(place, offset, leader.epoch, timers.now())
        return ShareHead(offset, cached=found)

    return head
