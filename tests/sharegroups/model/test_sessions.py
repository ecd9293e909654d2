"""Share sessions: epochs, partition sets, limits, ends (share-group semantics of ShareFetch and ShareAcknowledge)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.sharegroups.model import sessions as module
from kafka_share_proxy.sharegroups.model.sessions import EPOCH_MAX, Session, SessionKey, ShareSessions, next_epoch
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

T = b"t" * 16
P0, P1, P2 = (TopicIdPartition(T, number) for number in range(3))
KEY = SessionKey("group", "member", 1)


def opened(sessions: ShareSessions, key: SessionKey = KEY, connection: int = 7, partitions=(P0, P1)) -> Session:
    session = sessions.fetch(key, 0, connection, partitions, (), has_acks=False)
    assert isinstance(session, Session)
    return session


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(10)


def test_epoch_zero_opens_and_expects_one(sessions):
    """A new session has the partitions named and expects epoch 1 next."""
    session = opened(sessions)
    assert session.partitions == (P0, P1)
    assert session.epoch == 1
    assert sessions.get(KEY) is session
    assert len(sessions) == 1


def test_fetch_and_acknowledge_use_one_sequence(sessions):
    """Each accepted request moves the expected epoch, whichever of the two it is."""
    session = opened(sessions)
    assert sessions.fetch(KEY, 1, 7, (), (), has_acks=True) is session
    assert sessions.acknowledge(KEY, 2, 7) is session
    assert sessions.fetch(KEY, 3, 7, (), (), has_acks=False) is session
    assert session.epoch == 4


@pytest.mark.parametrize("epoch", [0, 1, 3, 2147483647, -2])
def test_another_epoch_is_refused_and_changes_nothing(sessions, epoch):
    """Item 18: an epoch that is too high or too low gets 123, and the expected one is accepted after it."""
    session = opened(sessions)
    sessions.acknowledge(KEY, 1, 7)
    if epoch != 0:
        assert sessions.fetch(KEY, epoch, 7, (P2,), (P0,), has_acks=False) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.acknowledge(KEY, epoch, 7) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert session.partitions == (P0, P1)
    assert sessions.fetch(KEY, 2, 7, (), (), has_acks=False) is session


def test_without_session_every_epoch_but_zero_is_unknown(sessions):
    """Items 17 and 19: 122 for a fetch and an acknowledgement without a session, 123 for an acknowledgement at 0."""
    opened(sessions)
    other = KEY._replace(member_id="other")
    for epoch in (1, 5, -1):
        assert sessions.fetch(other, epoch, 7, (), (), has_acks=False) is ErrorCode.SHARE_SESSION_NOT_FOUND
        assert sessions.acknowledge(other, epoch, 7) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.acknowledge(other, 0, 7) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_a_member_has_one_session_per_node(sessions):
    """The same member at another broker has a separate sequence."""
    opened(sessions)
    elsewhere = KEY._replace(node_id=2)
    assert sessions.acknowledge(elsewhere, 1, 7) is ErrorCode.SHARE_SESSION_NOT_FOUND
    second = opened(sessions, elsewhere, partitions=(P2,))
    assert second.partitions == (P2,)
    assert sessions.get(KEY).partitions == (P0, P1)


def test_acknowledgements_do_not_open_a_session(sessions):
    """Item 16: epoch 0 with acknowledgements is invalid and leaves an open session alone."""
    session = opened(sessions)
    assert sessions.fetch(KEY, 0, 8, (P2,), (), has_acks=True) is ErrorCode.INVALID_REQUEST
    assert sessions.get(KEY) is session


def test_reopening_starts_over(sessions):
    """Epoch 0 replaces the session: new partitions, next epoch 1."""
    first = opened(sessions)
    sessions.acknowledge(KEY, 1, 7)
    second = opened(sessions, partitions=(P2,))
    assert second is not first
    assert second.partitions == (P2,)
    assert second.epoch == 1
    assert len(sessions) == 1


def test_the_largest_epoch_is_followed_by_one(sessions):
    """Item 27."""
    session = opened(sessions)
    session.epoch = EPOCH_MAX
    assert sessions.fetch(KEY, EPOCH_MAX, 7, (), (), has_acks=False) is session
    assert session.epoch == 1
    assert next_epoch(EPOCH_MAX - 1) == EPOCH_MAX


def test_the_final_epoch_needs_a_session_but_no_number(sessions):
    """-1 is accepted whatever is expected; the session lives until its end is called."""
    session = opened(sessions)
    sessions.acknowledge(KEY, 1, 7)
    assert sessions.acknowledge(KEY, -1, 9) is session
    assert sessions.fetch(KEY, -1, 9, (P2,), (P0,), has_acks=True) is session
    assert session.partitions == (P0, P1)
    assert sessions.end(KEY) is session
    assert sessions.end(KEY) is None
    assert sessions.acknowledge(KEY, -1, 7) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_partitions_are_added_and_then_forgotten(sessions):
    """Items 22 and 38: a partition in both lists is gone; one named again keeps its place."""
    session = opened(sessions)
    sessions.fetch(KEY, 1, 7, (P0, P2), (P1, P2), has_acks=False)
    assert session.partitions == (P0,)


def test_the_limit_counts_per_node(sessions):
    """Item 21: one session too many at a node is refused; another node has room, and an end makes room."""
    sessions = ShareSessions(2)
    keys = [KEY._replace(member_id=str(number)) for number in range(3)]
    opened(sessions, keys[0], 1)
    opened(sessions, keys[1], 2)
    refused = sessions.fetch(keys[2], 0, 3, (P0,), (), has_acks=False)
    assert refused is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    opened(sessions, keys[2]._replace(node_id=2), 3)
    opened(sessions, keys[0], 4)
    sessions.end_connection(2)
    opened(sessions, keys[2], 3)


def test_a_connection_takes_its_sessions_with_it(sessions):
    """Item 20: the sessions it opened are gone and handed over with their partitions; others stay."""
    mine = opened(sessions)
    also = opened(sessions, KEY._replace(group_id="another"))
    other = opened(sessions, KEY._replace(member_id="other"), connection=8)
    assert set(sessions.end_connection(7)) == {mine, also}
    assert mine.partitions == (P0, P1)
    assert sessions.fetch(KEY, 1, 8, (), (), has_acks=False) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.get(other.key) is other
    assert sessions.end_connection(7) == ()
    assert sessions.evicted == 2


def test_a_session_opened_anew_elsewhere_survives_the_old_connection(sessions):
    """The end of the connection that opened the first session does not end the second."""
    opened(sessions, connection=7)
    second = opened(sessions, connection=8)
    assert sessions.end_connection(7) == ()
    assert sessions.get(KEY) is second
    assert sessions.end_connection(8) == (second,)


def test_using_a_session_from_another_connection_does_not_move_it(sessions):
    """Only the connection that opened it ends it."""
    session = opened(sessions, connection=7)
    assert sessions.fetch(KEY, 1, 8, (), (), has_acks=False) is session
    assert sessions.end_connection(8) == ()
    assert sessions.end_connection(7) == (session,)


def test_the_end_of_a_group_ends_its_sessions_at_all_brokers(sessions):
    opened(sessions)
    opened(sessions, KEY._replace(member_id="second"))
    opened(sessions, KEY._replace(node_id=2))
    sessions.end(KEY)
    sessions.end(KEY._replace(member_id="second"))
    assert [session.key.node_id for session in sessions.end_group("group")] == [2]
    assert len(sessions) == 0


def test_partitions_rotate_with_the_epoch(sessions):
    """Each request begins at another partition."""
    session = opened(sessions, partitions=(P0, P1, P2))
    assert session.rotated() == (P0, P1, P2)
    starts = []
    for epoch in (1, 2, 3):
        sessions.fetch(KEY, epoch, 7, (), (), has_acks=False)
        starts.append(session.rotated()[0])
        assert set(session.rotated()) == {P0, P1, P2}
    assert starts == [P1, P2, P0]


def test_rotating_nothing_gives_nothing(sessions):
    """A session without partitions has no order."""
    session = opened(sessions, partitions=())
    sessions.fetch(KEY, 1, 7, (), (), has_acks=False)
    assert session.rotated() == ()


def test_a_response_names_new_and_errored_partitions_once(sessions):
    """New ones and those whose last result was an error are named even without records; others are not."""
    session = opened(sessions)
    assert session.include(P0, records=False, error=False)
    assert not session.include(P0, records=False, error=False)
    assert session.include(P0, records=False, error=True)
    assert session.include(P0, records=False, error=False)
    assert not session.include(P0, records=False, error=False)
    assert session.include(P0, records=True, error=False)


def test_a_partition_that_gave_records_goes_to_the_end(sessions):
    """So that the next request begins with the others."""
    session = opened(sessions, partitions=(P0, P1, P2))
    session.include(P0, records=True, error=False)
    assert session.partitions == (P1, P2, P0)


def test_a_partition_outside_the_session_is_returned_only_with_a_result(sessions):
    """A partition forgotten in the meantime is not added again by its response."""
    session = opened(sessions)
    assert not session.include(P2, records=False, error=False)
    assert session.include(P2, records=False, error=True)
    assert P2 not in session


def test_a_session_cannot_grow_without_end(sessions, monkeypatch):
    """Past the limit a request is invalid, at the opening and later; the session stays as it was."""
    monkeypatch.setattr(module, "SESSION_PARTITIONS_MAX", 2)
    assert sessions.fetch(KEY, 0, 7, (P0, P1, P2), (), has_acks=False) is ErrorCode.INVALID_REQUEST
    session = opened(sessions)
    assert sessions.fetch(KEY, 1, 7, (P0, P2), (), has_acks=False) is ErrorCode.INVALID_REQUEST
    assert session.epoch == 1
    assert sessions.fetch(KEY, 1, 7, (P0, P1), (), has_acks=False) is session


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("fetch"), st.integers(0, 2), st.integers(-1, 4), st.integers(1, 3)),
            st.tuples(st.just("acknowledge"), st.integers(0, 2), st.integers(-1, 4), st.integers(1, 3)),
            st.tuples(st.just("end"), st.integers(0, 2), st.just(0), st.just(0)),
            st.tuples(st.just("hang up"), st.just(0), st.just(0), st.integers(1, 3)),
        ),
        max_size=40,
    )
)
def test_the_counts_agree_with_the_sessions(steps):
    """Under any sequence: never more sessions than allowed, and ending all connections leaves nothing over."""
    sessions = ShareSessions(2)
    for action, member, epoch, connection in steps:
        key = SessionKey("group", str(member), 1)
        if action == "fetch":
            before = sessions.get(key)
            expected = before.epoch if before else None
            result = sessions.fetch(key, epoch, connection, (P0,), (), has_acks=False)
            if isinstance(result, ErrorCode) and before is not None:
                assert sessions.get(key) is before
                assert before.epoch == expected
        elif action == "acknowledge":
            sessions.acknowledge(key, epoch, connection)
        elif action == "end":
            sessions.end(key)
        else:
            sessions.end_connection(connection)
        assert len(sessions) <= 2
    for connection in (1, 2, 3):
        sessions.end_connection(connection)
    assert len(sessions) == 0


def test_partitions_of_all_sessions_have_one_limit(sessions, monkeypatch):
    """Regardless of the number of members, brokers and connections: beyond it the error is "too many sessions"."""
    monkeypatch.setattr(module, "SESSIONS_PARTITIONS_MAX", 4)
    opened(sessions)
    other = SessionKey("group", "other", 2)
    refused = sessions.fetch(other, 0, 8, (P0, P1, P2), (), has_acks=False)
    assert refused == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    opened(sessions, other, 8)
    assert sessions.fetch(KEY, 1, 7, (P2,), (), has_acks=False) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert isinstance(sessions.fetch(KEY, 1, 7, (), (P0,), has_acks=False), Session)
    assert isinstance(sessions.fetch(KEY, 2, 7, (P2,), (), has_acks=False), Session)
    assert sessions.partitions == 4
    opened(sessions, KEY, 9, (P0,))
    assert sessions.partitions == 3
    sessions.end_connection(8)
    sessions.end_group("group")
    assert sessions.partitions == 0
