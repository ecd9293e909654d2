"""Changes of groups in progress: they hold once stored, whether or not a caller waits."""

from __future__ import annotations

import pytest
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.sharegroups.state.group_changes import ShareChanges, succeeded
from kafka_share_proxy.sharegroups.state.state_writes import ShareWrites
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import SlowJournal

LEVEL = {"share.isolation.level": "read_committed"}


@pytest.fixture
def journal() -> SlowJournal:
    slow_journal = SlowJournal()
    slow_journal.slow = True
    return slow_journal


@pytest.fixture
def changes(journal) -> ShareChanges:
    coordinator = ShareCoordinator(BrokerShareLimits())
    writes = ShareWrites(journal, coordinator, lambda *_, **__: None, lambda: 0.0, lambda _key: None)
    return ShareChanges(coordinator, writes)


def test_settings_hold_once_they_are_stored(journal, changes):
    """Until then they are under way, and when they are refused nothing has happened."""
    reported = []
    for settle in (lambda: journal.refuse(ErrorCode.NOT_COORDINATOR), journal.confirm):
        assert changes.coordinator.stored_settings("g") == {}
        stored = changes.store_settings("g", LEVEL, b"", lambda: reported.append("in force"))
        assert changes.settings == {"g": stored}
        settle()
        assert changes.settings == {}
    assert (changes.coordinator.stored_settings("g"), reported) == (LEVEL, ["in force"])


def test_an_epoch_counts_as_stored_once_it_is(journal, changes):
    """An older one that is confirmed later takes nothing back."""
    group = changes.coordinator.add_group("g")
    group.epoch = 7
    changes.store_epoch(group)
    group.epoch = 8
    changes.store_epoch(group)
    assert group.stored_epoch == 0
    journal.appends.reverse()
    journal.confirm()
    assert group.stored_epoch == 8
    journal.confirm()
    assert group.stored_epoch == 8


def test_a_group_is_held_once_it_is_stored(journal, changes):
    changes.hold_group("g")
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    changes.hold_group("g")
    assert changes.coordinator.group("g") is None
    journal.confirm()
    assert changes.coordinator.group("g").state == "Empty"


def test_a_deletion_is_known_of_while_it_is_under_way(changes):
    deletion: Promise[ErrorCode] = Promise()
    assert changes.delete_group("g", deletion) is deletion
    assert changes.deletions == {"g": deletion}
    deletion.set(ErrorCode.NONE)
    assert changes.deletions == {}
    changes.delete_group("g", deletion)
    assert changes.deletions == {}


def test_success_is_what_the_journal_says(journal):
    stored, refused = journal.append([]), journal.append([])
    journal.confirm()
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert (succeeded(stored), succeeded(refused)) == (True, False)
