"""The journal in memory."""

from __future__ import annotations

from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.sharegroups.state.state_records import StateKey

KEY = StateKey("partition", "g", b"t" * 16, 0)


def test_latest_value_counts_and_none_deletes():
    journal = MemoryJournal()
    append = journal.append([(KEY, b"1"), (StateKey("group", "g"), b"2")])
    assert append.done
    append.result()
    journal.append([(KEY, b"3")])
    assert journal.values == {KEY: b"3", StateKey("group", "g"): b"2"}
    journal.append([(KEY, None), (StateKey("group", "never"), None)])
    assert journal.values == {StateKey("group", "g"): b"2"}
