"""Finding the group id in a request's first bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.forwarding.interfaces import Call
from proxy.loop.promise import Task
from proxy.sharegroups.apis.group_ids import any_entry, leading_string
from proxy.wire import frames, registry

CASES = [(11, 5), (11, 9), (68, 0), (8, 2), (8, 8)]


@given(st.sampled_from(CASES), st.text(max_size=200), st.none() | st.text(max_size=20))
def test_the_first_string_is_found(case, group_id, client_id):
    """In old and flexible encodings, whatever the client calls itself."""
    key, version = case
    message = registry.message(f"{registry.API_KEYS[key]}Request")(group_id=group_id)
    frame = memoryview(frames.request(key, version, 1, client_id, message))[4:]
    assert leading_string(frame, 0) == group_id


@given(st.text(max_size=200), st.text(max_size=200), st.sampled_from([0, 3, 5]))
def test_the_second_string_is_found(transactional_id, group_id, version):
    """TxnOffsetCommit names the transactional id first."""
    message = registry.message("TxnOffsetCommitRequest")(transactional_id=transactional_id, group_id=group_id)
    frame = memoryview(frames.request(28, version, 1, "c", message))[4:]
    assert leading_string(frame, 0) == transactional_id
    assert leading_string(frame, 1) == group_id


@given(st.sampled_from(CASES), st.binary(max_size=40), st.integers(0, 2))
def test_any_bytes_give_a_string_or_none(case, noise, index):
    """A broken frame is nobody's group: the broker judges it."""
    key, version = case
    start = frames.request(key, version, 1, "c", registry.message(f"{registry.API_KEYS[key]}Request")(group_id="g"))[
        4:15
    ]
    found = leading_string(memoryview(start + noise), index)
    assert found is None or isinstance(found, str)
    assert leading_string(memoryview(noise), index) is None or noise


@given(st.lists(st.integers(0, 3), max_size=50), st.integers(0, 3))
def test_one_entry_of_ours_is_enough(entries, ours):
    """Told from the decoded request."""
    call = Call(42, 2, 1, None, entries, None)
    task = Task(any_entry(lambda message: message, ours.__eq__)(call), lambda _: None)
    task.start()
    assert task.value is (ours in entries)
