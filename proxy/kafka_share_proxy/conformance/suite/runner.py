"""Runs cases concurrently, each bounded in time and independent of the others."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import trio

from kafka_share_proxy.conformance.suite.capabilities import Capabilities, discover
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import Case
from kafka_share_proxy.conformance.suite.cluster_under_test import ClusterUnderTest, SetUpFailed
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.expectations import Mismatch, NotOffered
from kafka_share_proxy.conformance.suite.outcomes import SET_UP, SHOWN_EXCHANGES, Outcome, RunReport, Status
from kafka_share_proxy.wire.errors import ProxyError

CONCURRENT = 8
"""Cases that run at the same time."""
LEAVE_TIMEOUT_S = 10.0
"""Seconds that the members of a case have to leave their groups."""

UNEXPECTED_SHAPE = (LookupError, AttributeError, TypeError, ValueError)
"""Errors in the body of a case if a response lacks an entry, or has null where the case reads a structure."""

Progress = Callable[[Outcome], None]


async def run_suite(
    dialling: Dialling, cases: Sequence[Case], progress: Progress, concurrent: int = CONCURRENT
) -> RunReport:
    """Find out what the cluster offers, run the cases, and delete what they made. Raises ConnectionFailed."""
    started_at, began_at = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    cluster, capabilities = await discover(dialling)
    outcomes: dict[str, Outcome] = {}
    async with cluster.cleaned_up(), trio.open_nursery() as nursery:
        slots = trio.Semaphore(concurrent)
        for case in cases:
            await slots.acquire()
            nursery.start_soon(_run_in_slot, case, cluster, capabilities, slots, outcomes, progress)
    return RunReport(
        bootstrap=",".join(map(str, dialling.bootstrap)),
        release=capabilities.release,
        started_at=started_at,
        duration_s=time.monotonic() - began_at,
        outcomes=[outcomes[case.id] for case in cases],
        missing=dict(capabilities.missing),
        left_behind=cluster.left_behind,
    )


async def _run_in_slot(
    case: Case,
    cluster: ClusterUnderTest,
    capabilities: Capabilities,
    slots: trio.Semaphore,
    outcomes: dict[str, Outcome],
    progress: Progress,
) -> None:
    try:
        outcomes[case.id] = await run_case(case, cluster, capabilities)
    finally:
        slots.release()
    progress(outcomes[case.id])


async def run_case(case: Case, cluster: ClusterUnderTest, capabilities: Capabilities) -> Outcome:
    """Run one case. A failure of the peer is its outcome; an error of the suite is raised."""
    if (reason := capabilities.lacks(case.needs)) is not None:
        return Outcome(case, Status.SKIPPED, reason=reason)
    started_at = time.monotonic()
    run = CaseRun(cluster, capabilities)
    try:
        with trio.fail_after(case.limit_s):
            await case.body(run)
    except NotOffered as error:
        return Outcome(case, Status.SKIPPED, reason=str(error))
    except Mismatch as error:
        return _failed(case, run, started_at, error.quantity, error.expected, error.actual)
    except (ProxyError, BaseExceptionGroup, *UNEXPECTED_SHAPE) as error:
        return _failed(case, run, started_at, *_reason_of(error))
    except trio.TooSlowError:
        return _failed(case, run, started_at, "duration", f"at most {case.limit_s:.0f} s", "not done in that time")
    finally:
        await _end(run)
    return Outcome(case, Status.PASSED, time.monotonic() - started_at)


def _reason_of(error: BaseException) -> tuple[str, str, str]:
    """Return what failed, what was expected and what was seen. Raises errors that are not the peer's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Mismatch):
        return error.quantity, error.expected, error.actual
    if isinstance(error, SetUpFailed):
        return SET_UP, "accepted requests", str(error)
    if isinstance(error, ProxyError):
        return "exchange", "a response", str(error)
    if isinstance(error, UNEXPECTED_SHAPE):
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "shape of the response", f"what the case reads: {place.line}", f"{type(error).__name__}: {error}"
    raise error


def _failed(case: Case, run: CaseRun, started_at: float, quantity: str, expected: str, actual: str) -> Outcome:
    known = run.capabilities.difference(case.differs)
    return Outcome(
        case,
        Status.FAILED if known is None else Status.DIFFERS,
        time.monotonic() - started_at,
        reason=quantity if known is None else f"{known} ({quantity})",
        expected=expected,
        actual=actual,
        exchanges=list(run.trail.last(SHOWN_EXCHANGES)),
    )


async def _end(run: CaseRun) -> None:
    """Let members leave. Failures are ignored, because the case has its outcome."""
    with trio.move_on_after(LEAVE_TIMEOUT_S, shield=True):
        with contextlib.suppress(ProxyError):
            await run.aclose()
