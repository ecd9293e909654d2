"""TxnOffsetCommit (key 28): ranges of a transaction ride in its metadata, and count when the coordinator commits it.

Versions: all that brokers have. Only commits with a text of ranges, and those of groups that are known to have ranges,
come to the handler.

Behaviour
- The producer's own request goes on with the offset moved over what is done, and in the metadata all ranges behind it:
  those that are stored, those of the text, and those that the same producer committed before in this transaction. The
  coordinator keeps them apart until EndTxn (KIP-447), so an abort forgets them and nothing is to be undone here.
- The broker bounds the text (`offset.metadata.max.bytes`, 4,096 characters): its 12 is passed on.
- A partition whose text cannot be read is refused with 42, one with too many ranges with 12; the others go on.
- While another transaction of the partition is open ranges get 14. After a takeover nobody knows what the open one has
  committed; its producer gets 14, and 22 (ILLEGAL_GENERATION) in the end, for which it aborts.
- Nothing is stored, and the mark is not known any more: whoever asks next asks the broker (commits/README.md rule 14).
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.commits.apis.commit_answers import altered, answer_of, request_of, take_codes
from proxy.commits.apis.commit_requests import commit
from proxy.commits.asked_commits import AskedCommit, kept_metadata
from proxy.commits.held_state import CommittingGroup
from proxy.commits.locked_partitions import look_at_partitions, with_locks
from proxy.commits.services import CommitServices
from proxy.forwarding.ask_and_reply import ask_upstream
from proxy.forwarding.commit_responses import CommitEntry, refused
from proxy.forwarding.declared_api import DeclaredApi, Needs
from proxy.forwarding.interfaces import Call
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicPartition

KEY = ApiKey.TXN_OFFSET_COMMIT


async def handle(
    call: Call[messages.TxnOffsetCommitRequest], services: CommitServices
) -> messages.TxnOffsetCommitResponse:
    """At the owner of the group."""
    found, throttle_time_ms = await commit(call, services, _TxnOffsetCommit)
    return answer_of(call, call.message.topics, found, throttle_time_ms)


class _TxnOffsetCommit:
    """One request, as far as it can be taken."""

    def __init__(
        self, call: Call[messages.TxnOffsetCommitRequest], services: CommitServices, asked: Sequence[AskedCommit]
    ) -> None:
        self.asked = asked
        self.throttle_time_ms = 0
        self._call, self._services = call, services
        self._group_id = call.message.group_id
        self._producer = (call.message.producer_id, call.message.producer_epoch)

    async def run(self) -> None:
        """Until each partition has its code. Raises UpstreamLost."""
        places = [asked.place for asked in self.asked if asked.place is not None]
        await with_locks(self._services, self._group_id, places, lambda _: True, self._commit)

    async def _commit(self) -> None:
        """While nobody else commits any of the partitions."""
        group = self._services.held.group(self._group_id)
        troubles = await look_at_partitions(self._services, self._call.connection, group, self.asked)
        entries = [(asked, entry) for asked in self.asked if (entry := self._entry(group, asked, troubles)) is not None]
        if entries:
            await self._forward(group, entries)

    def _entry(
        self, group: CommittingGroup, asked: AskedCommit, troubles: dict[TopicPartition, ErrorCode]
    ) -> CommitEntry | None:
        """The partition as it goes to the coordinator; None: it is refused."""
        if asked.place is None:
            return asked.entry
        trouble = troubles.get(asked.place, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if trouble != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            asked.refuse(trouble)
            return None
        held = group.of(asked.place)
        if asked.place in troubles and asked.text is not None:
            code = held.beside_open(self._producer[0], self._services.timers.now())
            if code != ErrorCode.NONE:
                asked.refuse(code, "another transaction of the partition is open, or one that another proxy saw begin")
                return None
        offset, ranges = held.in_transaction(asked.commit, self._producer)
        most = self._services.options.ranges_max
        if asked.text is not None and len(ranges) > most:
            reason = f"{len(ranges)} ranges with those that are stored, more than commits.ranges_max ({most})"
            asked.refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE, reason)
            return None
        entry = altered(asked.entry, committed_offset=offset)
        if offset != asked.entry.committed_offset:
            entry.committed_leader_epoch = -1
        if asked.text is not None:
            entry.committed_metadata = kept_metadata(asked, ranges)
        return entry

    async def _forward(self, group: CommittingGroup, entries: list[tuple[AskedCommit, CommitEntry]]) -> None:
        going = [asked for asked, _ in entries]
        try:
            answer = await ask_upstream(self._call, request_of(self._call, entries))
            take_codes(going, answer)
            self.throttle_time_ms = answer.throttle_time_ms
        finally:
            for asked in going:
                if asked.place is not None and asked.code == ErrorCode.NONE:
                    group.of(asked.place).committed_in_transaction(asked.commit, self._producer)
                elif asked.place is not None:
                    group.of(asked.place).mark_unknown()


async def _away(
    call: Call[messages.TxnOffsetCommitRequest], code: ErrorCode, _reason: str
) -> messages.TxnOffsetCommitResponse:
    return refused(call, call.message.topics, code)


API = DeclaredApi(key=KEY, handle=handle, needs=Needs.OWNER, away=_away, asks_again=True)
