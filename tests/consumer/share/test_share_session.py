"""A share session: its epochs, and the partitions in its requests."""

from __future__ import annotations

from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_session import EPOCH_MAX, ShareSession, has_renewals
from kafka_share_proxy.wire.values import TopicPartition

P0, P1, P2 = (TopicPartition("p", number) for number in range(3))
OLD, NEW = b"o" * 16, b"n" * 16


def test_epochs_increase_and_wrap_after_the_largest() -> None:
    session = ShareSession(1)
    assert not session.is_open
    session.advance({P0: OLD})
    session.advance()
    assert (session.epoch, session.is_open, session.partitions) == (2, True, {P0: OLD})
    session.epoch = EPOCH_MAX
    session.advance()
    assert session.epoch == 1


def test_a_session_that_is_opened_again_reads_nothing_and_remembers_ids() -> None:
    session = ShareSession(1)
    session.advance({P0: OLD})
    session.reopen()
    assert (session.is_open, session.partitions, session.ids) == (False, {}, {P0: OLD})


def test_new_partitions_are_added_and_missing_ones_forgotten() -> None:
    session = ShareSession(1)
    session.advance({P0: OLD, P1: OLD})
    assert session.changes({P1: OLD, P2: OLD}) == ({P2: OLD}, {P0: OLD})
    assert session.changes(session.partitions) == ({}, {})


def test_a_topic_made_anew_is_forgotten_and_added() -> None:
    session = ShareSession(1)
    session.advance({P0: OLD})
    assert session.changes({P0: NEW}) == ({P0: NEW}, {P0: OLD})


def test_renewals_are_found_among_others() -> None:
    assert not has_renewals({P0: {1: AcknowledgeType.ACCEPT}})
    assert has_renewals({P0: {1: AcknowledgeType.ACCEPT}, P1: {2: AcknowledgeType.RELEASE, 3: AcknowledgeType.RENEW}})
