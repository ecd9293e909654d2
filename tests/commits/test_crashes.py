"""Owners that are killed at any step, and that keep ranges in different places: nothing confirmed is lost, and nothing
unfinished counts as done.
"""

from __future__ import annotations

import random

import pytest
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.commits.conftest import STATES
from tests.support.commit_world import OFFSET_COMMIT, PRODUCER, Committed, CommitWorld, Sent
from tests.support.ports import SlowJournal

TOP = 40
STALE_S = 6.0
"""Seconds after which a recreated topic is noticed."""
PLACE = ("g", "t", 0)


class Compared:
    """One partition. `may`: offsets that a member has reported as done; `must`: those that were confirmed."""

    def __init__(self, seed: int, state: str, *, fast_path: bool) -> None:
        self.chance = random.Random(seed)
        self.world = CommitWorld(fast_path=fast_path)
        self.state = state
        self.may: set[int] = set()
        self.must: set[int] = set()
        self.is_stale = False
        """True while a recreated topic may not be noticed."""
        self.committed = -1
        """Committed offset at the broker after the last step."""

    @property
    def journal(self) -> SlowJournal:
        return self.world.journal

    def offset(self) -> int:
        return self.chance.randrange(TOP)

    def text(self) -> tuple[str, set[int]]:
        firsts = [(first, first + self.chance.randrange(4)) for first in self.chance.sample(range(TOP), 2)]
        text = "ic/1;" + ",".join(f"{first}-{last}" for first, last in firsts)
        return text + self.chance.choice(("", "", ";u=mine")), {
            offset for first, last in firsts for offset in range(first, last + 1)
        }

    async def step(self) -> None:
        steps = [self.commit] * 8 + [self.plain] * 2 + [self.crash, self.transaction, self.outside, self.limit]
        if self.chance.random() < 0.1:
            steps = [self.recreate]
        await self.chance.choice(steps)()
        self.check()

    async def commit(self) -> None:
        offset = self.offset() if self.chance.random() < 0.2 else 0
        text, done = self.text()
        self.may |= {*range(offset), *done}
        if await self.confirmed(self.world.commit(offset, text)):
            self.must |= set() if self.is_stale else {*range(offset), *done}

    async def plain(self) -> None:
        offset = self.offset()
        shown = self.committed
        self.may |= {*range(offset)}
        if offset < shown:
            self.must &= {*range(offset)}
        if await self.confirmed(self.world.commit(offset, self.chance.choice((None, "plain")))):
            if offset < shown:
                self.may = {*range(offset)}
            self.must = set() if self.is_stale else self.must | {*range(offset)}

    async def confirmed(self, sent: Sent) -> bool:
        """Let the broker and the topic respond, refuse, or kill the owner meanwhile. True if the client hears of it."""
        for _ in range(20):
            if self.chance.random() < 0.05:
                await self.crash()
                return False
            self.world.cluster.release()
            if not self.journal.appends:
                break
            if self.chance.random() < 0.2:
                self.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
            else:
                self.journal.confirm()
        return sent.has_response and sent.codes == [0]

    async def crash(self) -> None:
        self.state = self.chance.choice(STATES)
        await self.world.crash(self.chance, self.state)
        self.draw_limit()

    async def limit(self) -> None:
        self.draw_limit()

    def draw_limit(self) -> None:
        self.world.services.limit.characters = 0 if self.state == "overflow" else self.chance.choice((10, 20, 40, 4096))

    async def transaction(self) -> None:
        self.journal.slow = False
        text, done = self.text()
        if self.chance.random() < 0.4 and self.committed >= 0:
            sent, done = self.world.commit_in_transaction(self.committed, "plain"), set[int]()
        else:
            sent = self.world.commit_in_transaction(0, text)
        self.may |= done
        if self.chance.random() < 0.3:
            await self.crash()
        is_committed = self.chance.random() < 0.7
        self.world.coordinator.end_transaction(PRODUCER[0], commit=is_committed)
        if sent.has_response and sent.codes == [0] and is_committed and not self.is_stale:
            self.must |= done

    async def outside(self) -> None:
        """A tool resets the offset past the proxy, which notices it."""
        self.journal.slow = False
        offset = self.offset()
        if offset < self.committed:
            self.may, self.must = {*range(offset)}, {*range(offset)}
        else:
            self.may, self.must = self.may | {*range(offset)}, (self.must & self.known()) | {*range(offset)}
        self.world.coordinator.committed[PLACE] = Committed(offset)
        self.world.committed()
        self.must = set() if self.is_stale else self.must

    def known(self) -> set[int]:
        """Return what the owner has in memory: the broker's text is replaced."""
        held = self.world.services.held.group("g").state_of(TopicPartition("t", 0))
        return {offset for start, end in held.ranges for offset in range(start, end)}

    async def recreate(self) -> None:
        if self.is_stale:
            self.world.timers.advance(STALE_S)
            self.settle()
            self.is_stale = False
            self.must = set()
            if self.world.coordinator.committed.get(PLACE):
                self.world.committed()
            return
        self.settle()
        self.world.recreate_topic()
        self.may, self.must, self.is_stale = set(), set(), True

    def settle(self) -> None:
        self.world.cluster.release()
        while self.journal.appends:
            self.journal.confirm()

    def check(self) -> None:
        self.settle()
        self.journal.slow = False
        self.committed = -1
        if self.world.coordinator.committed.get(PLACE):
            offset, text = self.world.committed()
            self.committed = self.world.broker()[0]
            ranges = text.removeprefix("ic/1;").split(";")[0] if text.startswith("ic/1;") else ""
            spans = [each.split("-") for each in ranges.split(",") if each]
            shown = {*range(offset)} | {o for first, last in spans for o in range(int(first), int(last) + 1)}
            assert self.must <= shown, f"lost: {sorted(self.must - shown)}"
            assert shown <= self.may, f"not done: {sorted(shown - self.may)}"
        self.settle()
        self.journal.slow = True
        self.world.cluster.held = {OFFSET_COMMIT}


@pytest.mark.states("metadata")
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("fast_path", [True, False], ids=["fast path", "handler"])
async def test_owner_that_is_killed_loses_nothing_confirmed_and_invents_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int, fast_path: bool
) -> None:
    state = STATES[seed % len(STATES)]
    monkeypatch.setattr(CommitWorld, "state", state)
    compared = Compared(seed, state, fast_path=fast_path)
    for _ in range(100):
        await compared.step()
