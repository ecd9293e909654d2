"""Number of CPUs for `workers: auto`."""

import os
from pathlib import Path

import pytest
from kafka_share_proxy.app.settings.available_cpus import available_cpus


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    assert available_cpus(quota) == 8
    quota.write_text("max 100000\n")
    assert available_cpus(quota) == 8


@pytest.mark.parametrize(("text", "cpus"), [("250000 100000", 3), ("50000 100000", 1), ("1600000 100000", 8)])
def test_the_quota_of_a_container_counts_rounded_up(tmp_path: Path, text: str, cpus: int) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    assert available_cpus(quota) == cpus


def test_an_unreadable_quota_is_none(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("nonsense")
    assert available_cpus(quota) == 8
