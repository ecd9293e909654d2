"""The gate in front of share groups."""

from __future__ import annotations

from proxy.apis.share_gate import ShareGate
from proxy.errors import ErrorCode


def test_open_until_somebody_closes_it():
    gate = ShareGate()
    assert gate.is_open
    gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    assert (gate.is_open, gate.refusal, gate.reason) == (False, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "another reason")
    assert gate.times_closed == 1
    gate.open()
    assert gate.is_open


def test_lease_that_has_run_out_closes_it_by_itself():
    """Nobody need notice: the next look at the clock is enough."""
    gate, valid = ShareGate(), [True]
    gate.lease = lambda: valid[0]
    assert gate.is_open
    valid[0] = False
    assert not gate.is_open
    assert gate.refusal == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_whoever_waits_goes_on_when_it_is_really_open():
    gate, valid = ShareGate(), [False]
    gate.lease = lambda: valid[0]
    gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    waiting, gone = gate.wait(), gate.wait()
    gate.forget(gone)
    gate.forget(gone)
    gate.open()
    assert not waiting.done
    valid[0] = True
    gate.look()
    assert waiting.done
    assert not gone.done
