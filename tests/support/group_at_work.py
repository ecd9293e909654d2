"""A stock producer, and the members of a share group on the stock Java client, at work on one bootstrap address."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.raw import Raw, until
from tests.support.rolling import GROUP, TOPIC, Outcome, Plan, Producing
from tests.support.settlements import gaps
from tests.support.share_members import ShareMember

DRAINED_S = 120.0
REPORT_S = 15.0
START_S = 90.0
LISTEN_S = 0.05


class GroupAtWork:
    """Producer and members; `outcome` has what happened."""

    def __init__(self, bootstrap: str, folder: Path, plan: Plan) -> None:
        self.outcome = Outcome()
        self._bootstrap, self._plan = bootstrap, plan
        with Raw(bootstrap) as raw:
            raw.create_topic(TOPIC, plan.partitions)
            raw.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        names = [f"member-{number}" for number in range(plan.members)]
        self._members = [ShareMember(name, bootstrap, GROUP, TOPIC, folder) for name in names]
        self._producing = Producing(bootstrap, plan, self.outcome)

    def begin(self) -> None:
        """Wait until every member has settled records."""
        until(self._all_work, "every member to settle records", START_S)
        self.outcome.since = time.monotonic_ns()

    def work(self, seconds: float) -> None:
        """Let them work."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.listen()
            time.sleep(LISTEN_S)

    def listen(self) -> None:
        for member in self._members:
            assert member.child.status is None, f"{member.name} ended by itself: {member.child.output()}"
            member.listen(self.outcome.ledger)

    def finish(self) -> None:
        """Stop the producer, and wait until the group has settled everything."""
        self._producing.stop()
        self.outcome.until = time.monotonic_ns()
        until(self._nothing_is_left, "the group to settle everything", DRAINED_S, 0.1)
        with suppress(TimeoutError):  # then the ledger says what is not settled
            until(self._all_reported, "members to hear of it", REPORT_S)

    def kill(self) -> None:
        for member in self._members:
            member.child.kill()

    def report(self, title: str) -> None:
        """Print what happened."""
        outcome, ledger = self.outcome, self.outcome.ledger
        again = sum(len(each) - 1 for each in ledger.deliveries.values())
        print(
            f"\n{title}: {len(outcome.produced):,} records, {len(ledger.confirmed):,} confirmed, {again:,} delivered "
            f"again; longest time without a settled record {outcome.longest_gap_s():.1f} s, without a produced one "
            f"{gaps(outcome.produced_at, outcome.since, outcome.until)[0][0] / 1e9:.1f} s"
        )
        unconfirmed = [place for place in outcome.produced.values() if place not in ledger.confirmed]
        for place in unconfirmed:  # the group has no lag: they are settled, and the response was lost
            print(f"settled, unconfirmed: {place} {ledger.failed.get(place)}, delivered {ledger.deliveries.get(place)}")

    def _all_work(self) -> bool:
        self.listen()
        working = {delivery.member for each in self.outcome.ledger.confirmed.values() for delivery in each}
        return len(working) == self._plan.members

    def _all_reported(self) -> bool:
        self.listen()
        return not any(self.outcome.ledger.never_settled(self.outcome.produced))

    def _nothing_is_left(self) -> bool:
        self.listen()
        with suppress(OSError, TimeoutError), Raw(self._bootstrap) as raw:
            described = raw.send_request(
                "DescribeShareGroupOffsets", 1, on=raw.on_coordinator(GROUP),
                groups=[{"group_id": GROUP, "topics": None}],
            ).groups[0]  # fmt: skip
            parts: list[Any] = [part for topic in described.topics for part in topic.partitions]
            return len(parts) == self._plan.partitions and all(part.lag == 0 and not part.error_code for part in parts)
        return False
