"""A group of members, each a process of its own, that read one view; and what must be true of what they got."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from proxy.hashing import hash_of_record
from tests.support.raw import Raw, Topic

CHECKOUT = Path(__file__).resolve().parents[2]
READ_S = 120.0
"""Generous: a starved machine takes its time, and waiting ends as soon as all is well, or a member has failed."""
LEAVE_S = 30.0
TOLD_BYTES = 3000
"""Of a member's standard error, in a failure."""


class Member:
    """One process."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, assignor: str = "") -> None:
        """`client`: of `view_member`, or the path of a script for Node that takes the next three arguments."""
        self.lines: list[list[Any]] = []
        self.name = f"{Path(client).stem} of {group}"
        program = (
            ["node", client] if client.endswith(".js") else [sys.executable, "-m", "tests.support.view_member", client]
        )
        arguments = [*program, bootstrap, group, topic, *([assignor] if assignor else [])]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_close`
        self._process = subprocess.Popen(
            arguments, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, text=True
        )
        self.complaints = ""
        """What it said on its standard error, the end of it; known once it has ended."""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(json.loads(line))

    @property
    def assigned(self) -> list[int]:
        """What it was assigned last."""
        return next((line[1] for line in reversed(self.lines) if line[0] == "assigned"), [])

    @property
    def records(self) -> list[list[Any]]:
        """[partition, offset, key, value], in the order they came."""
        return [line[1:] for line in list(self.lines) if line[0] == "record"]

    @property
    def errors(self) -> list[str]:
        return [line[1] for line in list(self.lines) if line[0] == "error"]

    @property
    def ended(self) -> int | None:
        """Its exit status, if it has one."""
        return self._process.poll()

    def __str__(self) -> str:
        """What a failure has to say of it."""
        state = "runs" if self.ended is None else f"ended with status {self.ended}"
        rebalances = [f"{line[0]} {line[1]}" for line in list(self.lines) if line[0] in ("assigned", "revoked")]
        told = [f"{self.name}, process {self._process.pid}, {state}; has {self.assigned}, read {len(self.records)}"]
        told.append(f"    rebalances: {', '.join(rebalances[-12:]) or 'none'}")
        told += [f"    error: {error}" for error in self.errors[-5:]]
        complaints = self._heard()
        return "\n".join([*told, *([f"    said: {complaints}"] if complaints else [])])

    def kill(self) -> None:
        """Gone without a word."""
        self._process.kill()
        self._close()

    def leave(self) -> None:
        """Leaves its group; raises AssertionError if it cannot do so properly."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._close()
        assert status == 0, f"did not leave its group: {self}"

    def _heard(self) -> str:
        if not self._complaints.closed:
            size = os.fstat(self._complaints.fileno()).st_size
            at = max(size - TOLD_BYTES, 0)
            self.complaints = os.pread(self._complaints.fileno(), TOLD_BYTES, at).decode(errors="replace").strip()
        return self.complaints

    def _close(self) -> None:
        self._process.wait()
        self._reader.join()
        self._heard()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            if pipe is not None:
                pipe.close()


class Group:
    """Members that come and go."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, assignor: str = "") -> None:
        self._arguments = (client, bootstrap, group, topic, assignor)
        self.members: list[Member] = []
        self.gone: list[Member] = []

    def join(self, count: int = 1) -> None:
        self.members += [Member(*self._arguments) for _ in range(count)]

    def kill(self) -> None:
        self.gone.append(self.members.pop(0))
        self.gone[-1].kill()

    def leave(self) -> None:
        self.gone.append(self.members.pop(0))
        self.gone[-1].leave()

    def close(self) -> None:
        """All leave; raises AssertionError if one could not do so properly."""
        failed = []
        while self.members:
            try:
                self.leave()
            except AssertionError as error:
                failed.append(str(error))
        assert not failed, "\n".join(failed)

    @property
    def values(self) -> set[str]:
        return {record[3] for member in (*self.members, *self.gone) for record in member.records}

    def __str__(self) -> str:
        """What a failure has to say of it."""
        gone = [f"(gone) {member}" for member in self.gone]
        return "\n".join([*map(str, self.members), *gone])

    def wait_assigned(self, partitions: int, limit_s: float = READ_S) -> None:
        """Until the members share all partitions, each with one at least if there are enough."""

        def shared() -> bool:
            parts = [member.assigned for member in self.members]
            fair = len(self.members) > partitions or all(parts)
            return fair and sorted(part for each in parts for part in each) == list(range(partitions))

        self._wait(shared, lambda: f"{partitions} partitions were not assigned", limit_s)

    def wait_read(self, values: Iterable[str], limit_s: float = READ_S) -> None:
        wanted = set(values)
        self._wait(
            lambda: wanted <= self.values,
            lambda: f"{len(wanted - self.values)} of {len(wanted)} records did not come, {self._first_missing(wanted)}",
            limit_s,
        )

    def _first_missing(self, wanted: set[str]) -> str:
        return f"the first are {sorted(map(int, wanted - self.values))[:5]}"

    def _wait(self, condition: Callable[[], bool], failure: Callable[[], str], limit_s: float) -> None:
        """Raises AssertionError, which says how each member stands; at once where one ended by itself."""
        end = time.monotonic() + limit_s
        while not condition():
            ended = [member for member in self.members if member.ended is not None]
            assert not ended, f"{failure()}: a member ended by itself\n{self}"
            assert time.monotonic() < end, f"{failure()} in {limit_s:.0f} s\n{self}"
            time.sleep(0.1)

    def check(self, slots: int) -> None:
        """Each record in its slot; each key in order at each member, as long as that keeps its partitions."""
        for member in (*self.members, *self.gone):
            assert member in self.gone or member.ended is None, f"ended by itself: {member}"
            last: dict[tuple[int, str], int] = {}
            for line in list(member.lines):
                if line[0] == "revoked":
                    last = {place: offset for place, offset in last.items() if place[0] not in line[1]}
                elif line[0] == "assigned":
                    last = {place: offset for place, offset in last.items() if place[0] in line[1]}
                elif line[0] == "record":
                    _, partition, offset, key, _ = line
                    assert hash_of_record(key.encode(), offset) * slots >> 32 == partition % slots, line
                    if (partition, key) in last:
                        assert offset > last[partition, key], f"{key} went back: {line}\n{member}"
                    last[partition, key] = offset


def produce(raw: Raw, topic: Topic, first: int, last: int, keys: int = 97) -> list[str]:
    """Values first..last of keyed records, spread over the partitions by key; gives the values."""
    from proxy.wire import records

    by_partition: dict[int, list[Any]] = defaultdict(list)
    now = int(time.time() * 1000)
    for number in range(first, last):
        key = b"key-%d" % (number % keys)
        partition = (number % keys) % len(topic.leaders)
        by_partition[partition].append(records.Record(key, b"%d" % number, timestamp=now))
    for partition, made in by_partition.items():
        for start in range(0, len(made), 50):
            raw.append(topic, records.build_batch(0, made[start : start + 50]), partition)
    return [str(number) for number in range(first, last)]


def committed(raw: Raw, group: str, topic: str, partitions: Sequence[int]) -> list[int]:
    """What a group has committed, asked of its coordinator."""
    answer = raw.ask(
        "OffsetFetch", 8, on=raw.on_coordinator(group), require_stable=False,
        groups=[{"group_id": group, "topics": [{"name": topic, "partition_indexes": list(partitions)}]}],
    )  # fmt: skip
    found = {part.partition_index: part.committed_offset for part in answer.groups[0].topics[0].partitions}
    return [found[partition] for partition in partitions]
