"""What every handler is given: built once by `server`, by tests from small parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.apis.ports import Journal, Notes, Timers
from proxy.values import Limits

if TYPE_CHECKING:
    from proxy.apis.share_reads import ShareReads
    from proxy.apis.share_writes import ShareWrites
    from proxy.cluster.addresses import AddressBook
    from proxy.cluster.topology import ClusterView
    from proxy.cluster.versions import EffectiveVersions
    from proxy.share.coordinator import ShareCoordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """How share requests are served; all are settings (`share.*`)."""

    rights_cache_s: float = 15.0
    """How long a right that the broker granted or refused on a connection is believed there (decision 15)."""
    view_age_s: float = 1.0
    """Metadata of a topic older than this is asked again before a client is told "unknown" or "not the leader"."""
    fetch_wait_s: float = 0.5
    """Longest wait of one upstream Fetch; a longer wait of the client is made of several (decision 19)."""
    reservation_grace_s: float = 5.0
    """A reservation of a share partition's head ends this long after its Fetch's wait at the latest (decision 19)."""
    read_ahead_bytes: int = 4 << 20
    """Records asked for in one upstream Fetch; what is not acquired at once stays in the cache."""
    cache_age_s: float = 2.0
    """Cached batches older than this are read again, so that deleted records and topics do not live on here."""


@dataclass(slots=True, kw_only=True)
class Services:
    """What handlers may use beyond their `Call`. One per process."""

    limits: Limits
    timers: Timers
    notes: Notes
    book: AddressBook
    topology: ClusterView
    versions: EffectiveVersions
    coordinator: ShareCoordinator
    journal: Journal
    writes: ShareWrites
    """Decided changes on their way through the journal: one append at a time."""
    reads: ShareReads
    """Cache of batches just read, reservations, waiting ShareFetches."""
    serve_share: bool
    """True: share groups are served here; False: keys 76-79 are forwarded. Decided at start (decision 17)."""
    options: ShareOptions = field(default_factory=ShareOptions)
