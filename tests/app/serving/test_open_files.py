"""Capacity for clients under a limit of open files."""

from __future__ import annotations

import resource

import pytest
from kafka_share_proxy.app.serving import open_files
from kafka_share_proxy.app.serving.open_files import RESERVED, ClientCapacity

INFINITE = resource.RLIM_INFINITY


class Limit:
    """Limit of the process, as `resource` gets and sets it."""

    def __init__(self, soft: int, hard: int, refuses: bool = False) -> None:
        self.now, self.refuses = (soft, hard), refuses

    def get(self, _limit: int) -> tuple[int, int]:
        return self.now

    def set(self, _limit: int, expected: tuple[int, int]) -> None:
        if self.refuses:
            raise ValueError("current limit exceeds maximum limit")
        self.now = expected


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]  # a function that makes a Limit
    def set_limit(soft: int, hard: int, refuses: bool = False) -> Limit:
        limit = Limit(soft, hard, refuses)
        monkeypatch.setattr(resource, "getrlimit", limit.get)
        monkeypatch.setattr(resource, "setrlimit", limit.set)
        return limit

    return set_limit


@pytest.mark.parametrize(
    ("soft", "hard", "capacity", "after"),
    [
        (1024, 1 << 20, ClientCapacity(20_000 + RESERVED, 10_000), 20_000 + RESERVED),
        (1024, 4096, ClientCapacity(4096, (4096 - RESERVED) // 2), 4096),
        (1 << 20, 1 << 20, ClientCapacity(1 << 20, 10_000), 1 << 20),
        (1024, INFINITE, ClientCapacity(20_000 + RESERVED, 10_000), 20_000 + RESERVED),
        (128, 128, ClientCapacity(128, 0), 128),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed_and_allowed(limited, soft, hard, capacity, after) -> None:  # type: ignore[no-untyped-def]  # parameters
    limit = limited(soft, hard)
    assert open_files.expected_capacity(10_000) == capacity
    assert limit.now == (soft, hard)
    assert open_files.raise_limit(10_000) == capacity
    assert limit.now == (after, hard)


def test_a_system_that_refuses_leaves_what_there_was(limited) -> None:  # type: ignore[no-untyped-def]  # fixture
    limited(1024, INFINITE, refuses=True)
    assert open_files.raise_limit(10_000) == ClientCapacity(1024, (1024 - RESERVED) // 2)


def test_a_process_without_a_limit_has_room(limited) -> None:  # type: ignore[no-untyped-def]  # fixture
    limited(INFINITE, INFINITE)
    assert open_files.raise_limit(10_000).connections == 10_000


def test_a_low_limit_is_reported_with_its_remedy() -> None:
    assert open_files.shortage(ClientCapacity(20_256, 10_000), 10_000) == ""
    words = open_files.shortage(ClientCapacity(4096, 1920), 10_000)
    assert "1920" in words
    assert "limits.connections (10000)" in words
    assert "ulimit -Hn" in words
    assert "20256" in words
    assert "no room" in open_files.shortage(ClientCapacity(128, 0), 10_000)
