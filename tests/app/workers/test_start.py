"""What `serve` starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.app.serving import server
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.workers import seat, start, supervisor
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


def test_a_worker_is_prepared_before_it_is_hired_and_uses_the_settings_of_its_supervisor(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(workers=2)
    prepared: list[float] = []

    def prepare() -> float:
        prepared.append(0.04)
        return prepared[-1]

    class Link:
        def wait_until_hired(self) -> None:
            assert prepared
            assert started.programs == []

        def settings(self) -> Config:
            return config

        def seat(self) -> str:
            return "a seat"

    def unread() -> Config:
        raise ConfigError("a worker reads no file")

    monkeypatch.setattr(seat, "supervisor", Link)
    monkeypatch.setattr(server, "prepare", prepare)
    assert start.serve(unread) == 0
    assert started.programs == [("serve", config, "a seat")]
    assert started.walked_s == prepared[0]
