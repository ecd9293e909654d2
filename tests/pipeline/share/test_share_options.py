"""Options of `sharegroup` are checked before anything is dialled (pipeline/README.md rules 1 and 42)."""

from __future__ import annotations

import pytest
from kafka_share_proxy.pipeline.share.share_options import OFFSETS_MAX, read_share_options
from kafka_share_proxy.pipeline.source.options import BadOption

GIVEN = {"bootstrap": "proxy:9092", "topic": "orders", "group": "lake"}


def test_tasks_read_all_that_the_group_acquired() -> None:
    options = read_share_options(GIVEN | {"MAXOFFSETSPERTRIGGER": "500", "keyRanges": "2", "Acquirer": "/tmp/x/a"})
    assert (options.group, options.acquirer, options.max_offsets) == ("lake", "/tmp/x/a", 500)
    assert not options.source.is_committed
    assert len(options.source.ranges.starts) == 2
    assert read_share_options(GIVEN).max_offsets == OFFSETS_MAX


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"startingOffsets": "earliest"}, "startingOffsets: the share group says what is read"),
        ({"ENDINGOFFSETS": "latest"}, "ENDINGOFFSETS: the share group says"),
        ({"offsetRanges": "[]"}, "offsetRanges: the share group says"),
        ({"assign": "{}"}, "assign: the share group assigns partitions: say topic=orders"),
        ({"isolationLevel": "read_committed"}, "isolationLevel: the setting share.isolation.level"),
        ({"grup": "x"}, "no option is called 'grup'; did you mean 'group'"),
        ({"group": " "}, "group is missing: the id of the share group"),
        ({"fetchBytes": "1"}, "fetchBytes='1': must be at least 1024"),
    ],
)
def test_an_option_that_cannot_work_is_named(more: dict[str, str], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        read_share_options(GIVEN | more)
