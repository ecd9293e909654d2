"""Start of a share partition: latest, earliest, or by duration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.sharegroups.model.offset_reset import OffsetReset, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("PT15M", 900_000),
        ("P10D", 864_000_000),
        ("P2DT3H4M", 183_840_000),
        ("pt20.345s", 20_345),
        ("PT1.5S", 1500),
        ("PT0,25S", 250),
        ("PT0.0009S", 0),
        ("P0D", 0),
        ("PT-6H+13H", None),
        ("-P-1D", 86_400_000),
        ("P1DT-24H", 0),
        ("+PT1S", 1000),
        ("PT-0.5S", None),
        ("P1D1H", None),
        ("PT", None),
        ("P", None),
        ("P1DT", None),
        ("", None),
        ("1H", None),
        ("P1W", None),
        ("P1M", None),
        ("PT1H ", None),
        ("PT9223372036854775808S", None),
        ("PT-1S", None),
    ],
)
def test_durations_are_read_as_java_reads_them(text, ms):
    """java.time.Duration.parse: days to seconds, signs, fractions of a second; nothing negative here."""
    if ms is None:
        with pytest.raises(ValueError):
            parse_duration_ms(text)
    else:
        assert parse_duration_ms(text) == ms


@given(st.text(max_size=30))
def test_any_text_is_a_reset_or_a_value_error(text):
    """No other exception for any value a client may send."""
    for candidate in (text, f"by_duration:{text}", f"by_duration:P{text}"):
        try:
            reset = OffsetReset.parse(candidate)
        except ValueError:
            continue
        assert reset.duration_ms >= 0


def test_timestamps_of_resets():
    """Timestamps in ListOffsets requests; a duration longer than the time since 1970 requests everything."""
    assert OffsetReset.parse("latest").timestamp_ms(10_000) == -1
    assert OffsetReset.parse("earliest").timestamp_ms(10_000) == -2
    assert OffsetReset.parse("by_duration:PT4S").timestamp_ms(10_000) == 6000
    assert OffsetReset.parse("by_duration:P1D").timestamp_ms(10_000) == 0
