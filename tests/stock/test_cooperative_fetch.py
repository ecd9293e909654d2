"""Members of one group share one partition without keys: stripes of a view, each record committed by itself (A004-27).

The program is the example for confluent-kafka, as a user would run it.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import Raw, Topic, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

CHECKOUT = Path(__file__).resolve().parents[2]
RECORDS, RECORDS_MAX = 1600, 20_000
MORE = 256
"""Some for each stripe."""
STRIPES = 4
WORK_S = 0.06


class Span(NamedTuple):
    """Time span in which a member processed a record; inf: it was killed in the meantime."""

    begin: float
    end: float


class Group:
    """Members, each a separate process."""

    def __init__(self, front: Front, topic: str, name: str, folder: Path) -> None:
        self._arguments = [front.bootstrap, view_of(topic), name]
        self._folder = folder
        self.members: list[Child] = []

    def add(self) -> Child:
        command = [sys.executable, str(CHECKOUT / "tests" / "support" / "timed_example.py")]
        log = self._folder / f"member-{len(self.members)}.log"
        self.members.append(Child([*command, str(CHECKOUT / "deploy" / "examples"), *self._arguments], log))
        return self.members[-1]

    def close(self) -> None:
        for member in self.members:
            member.kill()

    def reported(self, member: Child) -> list[tuple[str, float, int]]:
        """Return what a member did, when, and with which offset; a last line that is cut off does not count."""
        lines = [line.split() for line in member.log.read_text().split("\n")[:-1]]
        return [(each[0], float(each[1]), int(each[3])) for each in lines if each[0] in ("begin", "end")]

    def spans(self, member: Child) -> dict[int, list[Span]]:
        """Offset -> when the member worked on it."""
        spans_by_offset: dict[int, list[Span]] = defaultdict(list)
        for kind, at, offset in self.reported(member):
            if kind == "begin":
                spans_by_offset[offset].append(Span(at, float("inf")))
            else:
                spans_by_offset[offset][-1] = spans_by_offset[offset][-1]._replace(end=at)
        return spans_by_offset

    def done(self) -> set[int]:
        return {offset for member in self.members for kind, _, offset in self.reported(member) if kind == "end"}


@pytest.fixture
def base(front: Front, fresh: Callable[[str], str]) -> Iterator[tuple[Raw, Topic]]:
    """A topic with one partition."""
    with Raw(front.bootstrap) as raw:
        topic = raw.create_topic(fresh("topic"), 1)
        produce(raw, topic, RECORDS)
        until(lambda: raw.view(view_of(topic.name)), "the view to be made")
        yield raw, topic


def view_of(base: str) -> str:
    return f"__view.s{STRIPES}.{base}"


def produce(raw: Raw, topic: Topic, count: int) -> None:
    raw.produce(topic, [str(WORK_S).encode()] * count)


def test_a004_27_members_share_one_partition_without_keys(
    front: Front, base: tuple[Raw, Topic], fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """Four, all busy; one is killed, one is added; a member that joins after all have stopped finds only new
    records.
    """
    raw, topic = base
    group = Group(front, topic.name, fresh("group"), tmp_path)
    try:
        first = [group.add() for _ in range(STRIPES)]
        records = RECORDS
        while not all(len(group.reported(member)) > 20 for member in first) and records < RECORDS_MAX:
            produce(raw, topic, MORE)  # the first member may have processed everything before the last has its stripe
            records += MORE
            time.sleep(1)
        dead, *_ = first
        dead.kill()
        added = group.add()
        while not group.reported(added) and records < RECORDS_MAX:  # the dead one has its stripe until its session ends
            produce(raw, topic, MORE)
            records += MORE
            time.sleep(1)
        assert group.reported(added), "who came later has a share"
        until(lambda: len(group.done()) == records, "every record to be processed")
        spans_by_member = {member: group.spans(member) for member in group.members}
        for offset in range(records):
            spans = sorted(
                (span, member is dead) for member, each in spans_by_member.items() for span in each.get(offset, ())
            )
            for (earlier, was_killed), (later, _) in pairwise(spans):
                assert was_killed or earlier.end <= later.begin, f"two at a time worked on {offset}: {spans}"
            assert len(spans) == 1 or offset in spans_by_member[dead], f"{offset} was processed again"
        for member in group.members[1:]:
            assert member.stop() == 0, member.log.read_text()[-2000:]
        produce(raw, topic, MORE)
        late = group.add()
        until(lambda: len(group.done()) == records + MORE, "what is new to be processed")
        assert min(group.spans(late)) >= records, "a restart skips what is done"
    finally:
        group.close()
