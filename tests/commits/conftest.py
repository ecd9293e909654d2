"""Tests of handlers run with ranges in the topic, in the brokers' commit metadata, and where these have no room."""

from __future__ import annotations

import pytest

from tests.support.commit_world import CommitWorld

STATES = ("topic", "metadata", "overflow")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise the tests of modules that use a CommitWorld. `states` limits a test to some."""
    if not hasattr(metafunc.module, "CommitWorld"):
        return
    marker = metafunc.definition.get_closest_marker("states")
    metafunc.parametrize("commit_state", STATES if marker is None else marker.args, indirect=True)


@pytest.fixture(autouse=True)
def commit_state(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the place of ranges of the worlds of a test."""
    state = str(getattr(request, "param", "topic"))
    monkeypatch.setattr(CommitWorld, "state", state)
    return state
