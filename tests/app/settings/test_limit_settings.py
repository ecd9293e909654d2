"""The settings `limits.*`: names, kinds, defaults."""

import pytest
from kafka_share_proxy.app.settings.limit_settings import mistakes, parse
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.forwarding.limits import Limits


def test_limits_are_read_by_name() -> None:
    """Text and numbers, whole ones where they count things; what is not written keeps its default."""
    assert parse({}) == Limits()
    limits = parse({"connections": "5", "idle_client_s": 1.5, "frame_bytes": 7.0})
    assert (limits.connections, limits.idle_client_s, limits.frame_bytes) == (5, 1.5, 7)
    assert limits.collected_bytes == Limits().collected_bytes


@pytest.mark.parametrize("wrong", [0, -1, "x", "", None, True, 1.5, float("inf"), float("nan"), "1.5", [1], {}, "inf"])
def test_limits_that_limit_nothing_are_refused(wrong: object) -> None:
    """Every limit is a positive number."""
    with pytest.raises(ConfigError, match=r"limits\.connections"):
        parse({"connections": wrong})


def test_mistakes_name_the_limit_that_was_meant() -> None:
    """Each mistake has its path and one sentence."""
    assert list(mistakes({"conections": 1, "connections": 5})) == [
        (("limits", "conections"), "there is no such limit; did you mean limits.connections?")
    ]
