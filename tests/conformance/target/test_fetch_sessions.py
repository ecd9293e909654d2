"""Fetch sessions of a node."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.fetch_sessions import (
    EVICTION_S,
    CachedPartition,
    FetchedKey,
    FetchSession,
    FetchSessions,
)
from kafka_share_proxy.conformance.target.seeded import SeededBytes
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

KEY = FetchedKey("t", b"", 0)


def requested() -> list[CachedPartition]:
    return [CachedPartition(KEY, messages.FetchRequest.FetchPartition())]


def opened(sessions: FetchSessions, session_id: int, epoch: int, now: float = 0.0) -> FetchSession | ErrorCode:
    request = messages.FetchRequest(session_id=session_id, session_epoch=epoch)
    return sessions.open(request, requested() if epoch == 0 else [], [], False, now)


def test_sessions_beyond_the_slots_replace_idle_ones_only() -> None:
    sessions = FetchSessions(1, SeededBytes(1))
    first, second = opened(sessions, 0, 0), opened(sessions, 0, 0)
    assert isinstance(first, FetchSession)
    assert isinstance(second, FetchSession)
    assert (first.session_id > 0, second.session_id) == (True, 0)
    third = opened(sessions, 0, 0, now=EVICTION_S + 1)
    assert isinstance(third, FetchSession)
    assert list(sessions.sessions) == [third.session_id]


def test_a_session_whose_last_partition_is_forgotten_ends() -> None:
    sessions = FetchSessions(9, SeededBytes(1))
    session = opened(sessions, 0, 0)
    assert isinstance(session, FetchSession)
    request = messages.FetchRequest(session_id=session.session_id, session_epoch=1)
    rest = sessions.open(request, [], [KEY], False, 0.0)
    assert isinstance(rest, FetchSession)
    assert (rest.session_id, dict(sessions.sessions)) == (0, {})


def test_ids_and_names_do_not_mix() -> None:
    sessions = FetchSessions(9, SeededBytes(1))
    session = opened(sessions, 0, 0)
    assert isinstance(session, FetchSession)
    request = messages.FetchRequest(session_id=session.session_id, session_epoch=1)
    assert sessions.open(request, [], [], True, 0.0) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_only_changes_are_returned() -> None:
    cached = requested()[0]
    data = messages.FetchResponse.PartitionData(high_watermark=3, log_start_offset=0, records=b"")
    assert [cached.must_respond(data) for _ in range(2)] == [True, False]
