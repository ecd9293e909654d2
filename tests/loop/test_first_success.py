"""Parallel attempts: the first success counts, surplus results are closed, faults are reported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from kafka_share_proxy.loop.first_success import IN_FLIGHT_MAX, STAGGER_S, Race, race


class Runners:
    """Attempts whose course the test lays down; `start_times` says when each began."""

    def __init__(self) -> None:
        self.began_at = trio.current_time()
        self.start_times: list[float] = []
        self.discarded: list[str] = []

    def attempt(self, seconds: float, outcome: str | Exception) -> Callable[[], Awaitable[str]]:
        async def run() -> str:
            self.start_times.append(trio.current_time() - self.began_at)
            await trio.sleep(seconds)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return run

    async def race(self, *attempts: Callable[[], Awaitable[str]]) -> Race[str, OSError]:
        return await race(attempts, OSError, self.discard)

    async def discard(self, result: str) -> None:
        self.discarded.append(result)


async def test_a_quick_failure_is_followed_immediately(autojump_clock: trio.testing.MockClock) -> None:
    """A server that has refused is not waited for."""
    runners, refused = Runners(), OSError("refused")
    outcome = await runners.race(runners.attempt(0, refused), runners.attempt(0, "b"), runners.attempt(0, "c"))
    assert (outcome.winner, outcome.failures) == ((1, "b"), {0: refused})
    assert runners.start_times == [0, 0]


async def test_slow_attempt_wins_if_it_succeeds_first(autojump_clock: trio.testing.MockClock) -> None:
    """Attempts begun in parallel are given up."""
    runners = Runners()
    outcome = await runners.race(runners.attempt(2 * STAGGER_S, "a"), runners.attempt(60, "b"))
    assert (outcome.winner, runners.start_times, runners.discarded) == ((0, "a"), [0, STAGGER_S], [])
    assert trio.current_time() - runners.began_at == pytest.approx(2 * STAGGER_S)


async def test_failures_are_reported_in_the_order_of_the_attempts(autojump_clock: trio.testing.MockClock) -> None:
    """Whichever was quicker."""
    runners = Runners()
    outcome = await runners.race(runners.attempt(9, OSError("slow")), runners.attempt(0, OSError("quick")))
    assert outcome.winner is None
    assert [(index, str(error)) for index, error in outcome.failures.items()] == [(0, "slow"), (1, "quick")]
    assert (await runners.race()).winner is None


async def test_second_result_is_discarded(autojump_clock: trio.testing.MockClock) -> None:
    """Two that succeed in the same moment: an unused connection may not stay open."""
    runners = Runners()
    outcome = await runners.race(runners.attempt(1 + STAGGER_S, "a"), runners.attempt(1, "b"))
    assert outcome.winner is not None
    assert {outcome.winner[1], *runners.discarded} <= {"a", "b"}
    both = [outcome.winner[1], *runners.discarded]
    assert len(both) == len(set(both))


async def test_result_that_coincides_with_a_fault_is_discarded(autojump_clock: trio.testing.MockClock) -> None:
    """A fault is raised; the connection made in the meantime does not stay open."""
    runners = Runners()

    async def faulty() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        raise ValueError("a bug")

    with pytest.raises(ExceptionGroup):
        await runners.race(faulty, runners.attempt(0, "b"))
    assert runners.discarded == ["b"]


async def test_attempts_in_parallel_are_bounded(autojump_clock: trio.testing.MockClock) -> None:
    """A long list of dead servers is no reason for as many sockets."""
    runners = Runners()
    attempts = [runners.attempt(100, OSError("no answer")) for _ in range(IN_FLIGHT_MAX + 1)]
    await runners.race(*attempts)
    assert runners.start_times[:IN_FLIGHT_MAX] == [STAGGER_S * number for number in range(IN_FLIGHT_MAX)]
    assert runners.start_times[IN_FLIGHT_MAX] == 100


async def test_unexpected_exception_propagates(autojump_clock: trio.testing.MockClock) -> None:
    """A fault is not one more server that is down."""
    runners = Runners()
    with pytest.raises(ExceptionGroup) as caught:
        await runners.race(runners.attempt(0, ValueError("a bug")), runners.attempt(0, "b"))
    assert caught.group_contains(ValueError)
