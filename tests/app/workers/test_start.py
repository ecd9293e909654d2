"""Processes that `serve` starts: a proxy, a supervisor, workers and a process that forks them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.app.serving import server
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import channel, forks, seat, start, supervisor
from kafka_share_proxy.feature.errors import ConfigError


class Started:
    """Which program was started, with which settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[tuple[str, Config, Any]] = []
        self.walked_s = 0.0
        monkeypatch.setattr(server, "run", self._serve)
        monkeypatch.setattr(supervisor, "run", self._supervise)

    def _serve(self, config: Config, *, read: Callable[[], Config], seat: Any = None, walked_s: float = 0.0) -> int:
        self.walked_s = walked_s
        self.programs.append(("serve", config, seat))
        return 0

    def _supervise(self, config: Config, read: Callable[[], Config]) -> int:
        self.programs.append(("supervise", config, None))
        return 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    monkeypatch.delenv(seat.DESCRIPTOR, raising=False)
    return Started(monkeypatch)


@pytest.mark.parametrize(("workers", "program"), [(1, "serve"), (2, "supervise")])
def test_only_several_workers_have_a_supervisor(started: Started, workers: int, program: str) -> None:
    config = Config(workers=workers)
    assert start.serve(lambda: config) == 0
    assert started.programs == [(program, config, None)]


class Link:
    """A supervisor's port."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def settings(self) -> Config:
        return self._config

    def seat(self) -> str:
        return "a seat"


def unread() -> Config:
    raise ConfigError("a worker reads no file")


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times: list[float] = []

    def prepare() -> float:
        times.append(0.04)
        return times[-1]

    monkeypatch.setattr(server, "prepare", prepare)
    return times


def test_a_worker_uses_the_settings_of_its_supervisor(
    started: Started, prepared: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(workers=2)
    monkeypatch.setattr(seat, "supervisor", lambda: Link(config))
    assert start.serve(unread) == 0
    assert started.programs == [("serve", config, "a seat")]
    assert [started.walked_s] == prepared


def test_a_process_is_prepared_once_before_it_forks_workers(
    started: Started, prepared: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(workers=2)
    ours, theirs = channel.pair()

    def next_worker(end: object) -> socket.socket:
        assert end is ours
        assert len(prepared) == 1
        assert started.programs == []
        return theirs

    monkeypatch.setattr(forks, "requests", lambda: ours)
    monkeypatch.setattr(forks, "next_worker", next_worker)
    monkeypatch.setattr(start, "SupervisorLink", lambda end: Link(config) if end is theirs else None)
    with ours, theirs:
        assert start.serve(unread) == 0
    assert started.programs == [("serve", config, "a seat")]
    assert [started.walked_s] == prepared


def test_a_process_that_forks_workers_ends_with_its_supervisor(
    started: Started, prepared: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = channel.pair()
    monkeypatch.setenv(forks.DESCRIPTOR, str(os.dup(ours.fileno())))
    ours.close()
    theirs.close()
    assert start.serve(unread) == 0
    assert started.programs == []
    assert len(prepared) == 1
