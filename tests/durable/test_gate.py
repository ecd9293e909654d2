"""The gate that admits requests for a state."""

from __future__ import annotations

from functools import partial

from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.sharegroups.state.state_records import share_gate
from kafka_share_proxy.wire.errors import ErrorCode


def test_gate_admits_requests_until_it_is_closed():
    gate = share_gate()
    assert gate.is_open
    gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    assert (gate.is_open, gate.refusal, gate.reason) == (False, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "another reason")
    assert (gate.refusal, gate.reason) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "another reason")
    gate.open()
    assert gate.is_open


def test_gate_admits_no_request_after_the_end_of_the_lease():
    """No event is needed: the next reading of the clock is enough."""
    gate, valid = share_gate(), [True]
    gate.lease = lambda: valid[0]
    assert gate.is_open
    valid[0] = False
    assert not gate.is_open
    assert gate.refusal == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_waiters_check_again_when_something_changes():
    gate, valid = share_gate(), [False]
    gate.lease = lambda: valid[0]
    gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    waiting, lost = gate.wait(), gate.wait()
    gate.forget(lost)
    gate.forget(lost)
    gate.open()
    assert waiting.done
    assert not lost.done


def test_loading_partition_is_found_by_group_id():
    gate = StateGate(2, len)
    gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading", [1])
    assert (gate.is_loading("a"), gate.is_loading(""), list(gate.all)) == (True, False, [0, 1])
    assert (gate.loading_for(1, 5.0), gate.loading_for(1, 7.0), gate.loading_for(0, 7.0)) == (0.0, 2.0, 0.0)
    gate.open()
    assert not gate.is_loading("a")


def test_each_state_partition_has_its_own_gate():
    gate = share_gate()
    gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "moved", [3, 4])
    assert gate.lets_in([1, 2])
    assert gate.lets_in([]), "what is about no group is nobody's to refuse"
    assert not gate.lets_in([1, 3])
    assert gate.why_not([1, 3]) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "moved")
    gate.open([3])
    assert gate.lets_in([1, 3])
    assert not gate.is_open


def test_requests_in_progress_may_finish_while_a_door_is_closing_and_end_when_it_closes():
    gate, ended = share_gate(), list[str]()
    one, other = (lambda: ended.append("one")), (lambda: ended.append("other"))
    gate.enter([1, 2], one)
    gate.enter([2], other)
    gate.closing([1], ErrorCode.COORDINATOR_NOT_AVAILABLE, "moves")
    assert not gate.lets_in([1])
    assert not ended
    gate.leave([2], other)
    gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "moves", [1, 2])
    assert ended == ["one", "one"], "ending twice must be harmless"


def test_the_owner_of_requests_that_wait_is_notified_once_when_doors_close():
    gate, noticed = share_gate(), list[set[int]]()
    gate.open()
    gate.on_closing = lambda partitions: noticed.append(set(partitions))
    gate.closing([1, 2], ErrorCode.COORDINATOR_NOT_AVAILABLE, "moves")
    gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "moves", [1, 2, 3])
    assert noticed == [{1, 2}, {3}]
    assert gate.closed == {1, 2, 3}
    gate.open([1])
    assert gate.closed == {2, 3}


def test_a_door_is_idle_while_no_request_is_in_progress():
    gate = share_gate()

    def end() -> None: ...

    gate.enter([1], end)
    assert (gate.is_idle([1]), gate.is_idle([0, 2])) == (False, True)
    gate.leave([1], end)
    assert gate.is_idle([1])


def test_what_relies_on_an_open_door_ends_when_it_begins_to_close():
    """It is no request in progress, and those that it still has are registered then."""
    gate, ended = share_gate(), []
    gate.rely([3], lambda: ended.append("idle"))
    end = partial(gate.enter, [3], lambda: ended.append("request"))
    gate.rely([3, 4], end)
    gate.rely_no_longer([3, 4], end)
    gate.rely([3], end)
    assert gate.is_idle([3])
    gate.closing([4], ErrorCode.COORDINATOR_NOT_AVAILABLE, "moves")
    assert ended == []
    gate.closing([3], ErrorCode.COORDINATOR_NOT_AVAILABLE, "moves")
    assert ended == ["idle"]
    assert not gate.is_idle([3])
    gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "moved", [3])
    assert ended == ["idle", "request"]
