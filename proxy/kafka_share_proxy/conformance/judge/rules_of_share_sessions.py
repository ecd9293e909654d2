"""Rules for share sessions and acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_share_proxy.conformance.judge.events import Inspection, ReceivedRequest
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.rule import ClientRules
from kafka_share_proxy.conformance.judge.share_history import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    RENEW,
    SHARE_KEYS,
    acknowledged,
)
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.topic_ids import topic_id_text

ACKNOWLEDGE_TYPES = range(5)
"""Gap, accept, release, reject, renew."""
RENEW_SINCE = 2
"""Version of the share requests that has RENEW (KIP-1222)."""
CHECKED_MAX = 10_000
"""Maximum number of offsets of one batch that are compared with the held ones."""

RULES = ClientRules()


@RULES.rule("share-session-epoch", "KIP-932; ShareSessionCache", keys=SHARE_KEYS)
def _epoch(event: ReceivedRequest, history: History) -> Iterator[str]:
    """The epoch of a share session is 0 to open it, -1 to close it, else one more than the last."""
    epoch = event.request.share_session_epoch
    session = history.shares.find(event)
    if epoch < FINAL_EPOCH:
        yield f"share session epoch {epoch}"
    elif event.key == ApiKey.SHARE_ACKNOWLEDGE and epoch == INITIAL_EPOCH:
        yield "ShareAcknowledge cannot open a session (epoch 0)"
    elif session is not None and not session.doubtful and epoch not in (INITIAL_EPOCH, FINAL_EPOCH, session.next_epoch):
        yield f"share session epoch {epoch} instead of {session.next_epoch}"
    elif session is None and epoch not in (INITIAL_EPOCH, FINAL_EPOCH) and _was_closed(event, history):
        yield f"share session epoch {epoch} after the session was closed"


def _was_closed(event: ReceivedRequest, history: History) -> bool:
    session = history.shares.sessions.get((event.request.group_id or "", event.request.member_id or "", event.node))
    return session is not None and session.closed


@RULES.rule("acknowledge-not-held", "KIP-932; SharePartition.acknowledge", keys=SHARE_KEYS)
def _held(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A member acknowledges only offsets that it acquired and has not acknowledged."""
    session = history.shares.find(event)
    if session is None or session.doubtful:
        return
    for place, batches in acknowledged(event):
        held = session.held.get(place, set())
        name = f"partition {place.partition} of topic {topic_id_text(place.topic_id)}"
        for batch in batches:
            last = min(batch.last_offset, batch.first_offset + CHECKED_MAX)
            offsets = range(batch.first_offset, last + 1)
            # Gaps (type 0) are offsets without a record: acquired as part of a batch, and held as well.
            missing = next((offset for offset in offsets if offset not in held), None)
            if missing is not None:
                yield f"{name}: offset {missing} is not held by the member"


@RULES.rule("acknowledge-batches-invalid", "KIP-932; KafkaApis.validateAcknowledgementBatches", keys=SHARE_KEYS)
def _batches(event: ReceivedRequest, _: History) -> Iterator[str]:
    """Acknowledgement batches ascend without overlap, each with one type or a type for each offset."""
    for place, batches in acknowledged(event):
        end = -1
        for batch in batches:
            problem = _problem_of(batch)
            if not problem and batch.first_offset <= end:
                problem = f"begins at {batch.first_offset}, not after {end}"
            end = max(end, batch.last_offset)
            if problem:
                yield f"partition {place.partition}: batch {batch.first_offset}-{batch.last_offset} {problem}"


def _problem_of(batch: Any) -> str:
    """Return what is wrong in one batch; empty if nothing."""
    count, types = batch.last_offset - batch.first_offset + 1, len(batch.acknowledge_types)
    if batch.first_offset < 0 or count < 1:
        return "is not a range of offsets"
    if types not in (1, count):
        return f"has {types} types for {count} offsets"
    unknown = [kind for kind in batch.acknowledge_types if kind not in ACKNOWLEDGE_TYPES]
    return f"has the unknown type {unknown[0]}" if unknown else ""


@RULES.rule("acknowledge-in-first-fetch", "KIP-932; SharePartitionManager.newContext", keys=SHARE_KEYS)
def _initial(event: ReceivedRequest, _: History) -> Iterator[str]:
    """The request that opens a share session acknowledges nothing."""
    if event.request.share_session_epoch == INITIAL_EPOCH and next(acknowledged(event), None) is not None:
        yield "the request that opens a session acknowledges records"


@RULES.rule("renew-flag-wrong", "KIP-1222", keys=SHARE_KEYS)
def _renew(event: ReceivedRequest, _: History) -> Iterator[str]:
    """A request with RENEW says so, and fetches nothing."""
    kinds = {kind for _, batches in acknowledged(event) for batch in batches for kind in batch.acknowledge_types}
    flag = event.version >= RENEW_SINCE and event.request.is_renew_ack
    if RENEW in kinds and not flag:
        yield "a type RENEW without IsRenewAck"
    if flag and event.key == ApiKey.SHARE_FETCH and _fetches(event.request):
        yield "IsRenewAck in a request that fetches records"


def _fetches(request: Any) -> bool:
    return any((request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms))


@RULES.rule(
    "share-forgets-nothing", "KIP-932; ShareSessionHandler", keys=frozenset({ApiKey.SHARE_FETCH}), severity="advice"
)
def _forgotten(event: ReceivedRequest, _: History) -> Iterator[str]:
    """Only requests within a share session forget partitions."""
    if event.request.forgotten_topics_data and event.request.share_session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        yield f"partitions are forgotten at epoch {event.request.share_session_epoch}"


@RULES.rule("final-epoch-missing", "KIP-932; ShareConsumeRequestManager.acknowledgeOnClose", on=Inspection)
def _abandoned(_: Inspection, history: History) -> Iterator[str]:
    """A member closes its share session (epoch -1) before it closes the connection."""
    for session in history.shares.sessions.values():
        if session.abandoned:
            yield f"member {session.member_id} of group {session.group_id} closed its connection to node {session.node}"
