"""Acknowledgements, alone or with a ShareFetch: decide, write, apply, then say so (sharegroups/README.md rule 43)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from proxy.brokers.topic_leaders import judge
from proxy.forwarding.interfaces import Call
from proxy.loop.promise import Promise
from proxy.reading.far_records import holder_of
from proxy.sharegroups.apis.share_requests import AckBatches, follow_leader
from proxy.sharegroups.model.acknowledging import RELEASE
from proxy.sharegroups.model.coordinator import Change, ShareKey
from proxy.sharegroups.model.partition import Refusal, check_shape
from proxy.sharegroups.model.sessions import SessionKey
from proxy.sharegroups.services import ShareServices
from proxy.sharegroups.state_writes import Outcome, told_in_time
from proxy.wire import messages
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicIdPartition

_Acknowledges: TypeAlias = "messages.ShareFetchRequest | messages.ShareAcknowledgeRequest"


class Acknowledging:
    """The acknowledgements of one request: decided, and written once `write` is called, whatever becomes of the client.

    What is decided but not written can neither be acquired nor acknowledged.
    """

    def __init__(
        self,
        call: Call[_Acknowledges],
        services: ShareServices,
        batches: Mapping[TopicIdPartition, AckBatches],
        outcome: dict[TopicIdPartition, ErrorCode],
        changes: Sequence[Change],
    ) -> None:
        self._call = call
        self._batches = batches
        self._services = services
        self._outcome = outcome
        self._changes = changes
        self._written: Promise[Outcome] | None = None
        self._begun = services.timers.now()

    def write(self) -> Promise[Outcome]:
        """Put what they change on its way to the journal, once."""
        if self._written is None:
            self._written = self._services.writes.write(self._changes)
            self._begun = self._services.timers.now()
            if self._batches:
                self._written.on_settled(self._count)
        return self._written

    def _count(self) -> None:
        """By type, what was done; also where nobody waits for the answer any more."""
        told = self.write().result()
        refused = {TopicIdPartition(*key[1:]) for key, code in told.items() if code != ErrorCode.NONE}
        figures = self._services.figures.of(self._call.message.group_id or "")
        for place, batches in self._batches.items():
            if self._outcome[place] == ErrorCode.NONE and place not in refused:
                for batch in batches:
                    figures.acknowledge(*batch)

    @property
    def leave_others_first(self) -> bool:
        """Whether the fetch of the same request (ShareFetch) comes before they are written.

        A broker begins both at once, and has fetched before it knows that the release is stored: what is released comes
        after all others. Records that another proxy keeps are acquired last (see `come_first`), so there it does not.
        """
        return holder_of(self._call.connection) == 0 and any(RELEASE in change.kinds for _, change in self._changes)

    @property
    def come_first(self) -> bool:
        """Whether the fetch of the same request has to wait until they are stored.

        Not on a broker. Here a window in which they take up the room is not divided into small answers. Records that
        another proxy keeps are acquired last: it lets go of them in the turn in which nothing is left to acquire of
        them.
        """
        if self.write().done:
            return False
        return holder_of(self._call.connection) != 0 or any(map(self._hinders, self._changes))

    def _hinders(self, change: Change) -> bool:
        key, _ = change
        share, settings = self._services.coordinator.share(key), self._services.coordinator.settings(key.group_id)
        if share is None:
            return True
        request = self._call.message
        wanted = request.max_records if isinstance(request, messages.ShareFetchRequest) else 0
        return share.partition.room(settings.max_record_locks) < wanted

    @property
    def are_told(self) -> bool:
        """Whether the outcome is known."""
        return self._written is not None and self._written.done

    async def outcome(self) -> dict[TopicIdPartition, ErrorCode]:
        """Of each partition.

        Where the journal cannot tell in time what became of the append, the client is told to come again; it goes on.
        """
        keys = (key for key, _ in self._changes)
        told = await told_in_time(self._services.timers, self.write(), keys, self._begun)
        for key, code in told.items():
            self._outcome[TopicIdPartition(key.topic_id, key.partition)] = code
        return self._outcome


def decide(
    call: Call[_Acknowledges],
    services: ShareServices,
    session: SessionKey,
    batches: Mapping[TopicIdPartition, AckBatches],
    renew_allowed: bool,
) -> Acknowledging:
    """Decide, all of them for one append. A partition that fails does not touch the others."""
    outcome: dict[TopicIdPartition, ErrorCode] = {}
    changes: list[Change] = []
    for place, acks in batches.items():
        outcome[place] = _decide(call, services, session, place, acks, renew_allowed, changes)
    services.clock.not_later_than(services.coordinator.next_lock_deadline())
    return Acknowledging(call, services, batches, outcome, changes)


def _decide(
    call: Call[_Acknowledges],
    services: ShareServices,
    session: SessionKey,
    place: TopicIdPartition,
    acks: AckBatches,
    renew_allowed: bool,
    changes: list[Change],
) -> ErrorCode:
    """The code if it is settled; NONE also when it hangs on the change that was added to `changes`."""
    mistake = check_shape(acks, renew_allowed)
    if mistake is not None:
        return mistake.error
    key = ShareKey(session.group_id, place.topic_id, place.partition)
    follow_leader(services, key)
    code = judge(call.connection, services, place)
    if code != ErrorCode.NONE:
        return code
    share = services.coordinator.share(key)
    if share is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # nothing was ever acquired from it here
    settings, now = services.coordinator.settings(session.group_id), services.timers.now()
    bound = services.options.renewal_bound(session.group_id) if renew_allowed else None
    decided = share.partition.decide_acknowledge(session.member_id, acks, renew_allowed, settings, now, bound)
    if renew_allowed and services.audit is not None:
        services.audit.renewed(key)
    if isinstance(decided, Refusal):
        if decided.by_bound:
            where = f"{place.topic_id.hex()}-{place.partition}"
            topic = services.topology.topic_by_id(place.topic_id)
            if topic is not None:
                where = f"{topic.name}-{place.partition}"
            services.notes(
                "share-renewal-refused",
                group=session.group_id,
                member=session.member_id,
                partition=where,
                reason=decided.message,
            )
        return decided.error
    if decided.changes:
        changes.append((key, decided))
    return ErrorCode.NONE
