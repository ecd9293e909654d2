"""A group of members, each a separate process, that read one view; and checks of their records."""

from __future__ import annotations

import itertools
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

from kafka_share_proxy.wire.records.key_hash import hash_of_record

from tests.support import view_console
from tests.support.raw import Raw, Topic

CHECKOUT = Path(__file__).resolve().parents[2]
READ_S = 120.0
"""Generous: a starved machine takes its time, and waiting ends as soon as all is well, or a member has failed."""
LEAVE_S = 30.0
PRINTED_BYTES = 3000
"""Bytes of a member's standard error that a failure shows."""
OVERLAP_S = 20.0
"""Seconds for which two members may seem to read one partition: their output is read with delay, and one that a starved
machine kept from its heartbeats learns late that it is no longer a member.
"""


def command_of(client: str, *arguments: str) -> list[str]:
    """The command line of a member.

    `client`: of `view_member`; "console-" and a release, for Kafka's console consumer; or the path of a program that
    takes the same arguments, be it a script for Node or an executable that wants "member" before them.
    """
    if client.startswith("console-"):
        return view_console.command_of(client.removeprefix("console-"), *arguments)
    if client.endswith(".js"):
        return ["node", client, *arguments]
    if Path(client).is_absolute():
        return [client, "member", *arguments]
    return [sys.executable, "-m", "tests.support.view_member", client, *arguments]


class Member:
    """One process."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, assignor: str = "") -> None:
        """`client`: see `command_of`."""
        self.lines: list[list[Any]] = []
        self.times: list[float] = []
        """Arrival time of each line."""
        self.name = f"{Path(client).stem} of {group}"
        arguments = command_of(client, bootstrap, group, topic, *([assignor] if assignor else []))
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_close`
        self._process = subprocess.Popen(
            arguments, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, text=True
        )
        self.complaints = ""
        """End of its standard error; known once it has ended."""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        console = view_console.Console()
        for line in self._process.stdout:
            for event in [json.loads(line)] if line.startswith('["') else console.reported(line):
                self.times.append(time.monotonic())
                self.lines.append(event)

    @property
    def assigned(self) -> list[int]:
        """Return its last assignment."""
        return next((line[1] for line in reversed(self.lines) if line[0] == "assigned"), [])

    @property
    def records(self) -> list[list[Any]]:
        """Return [partition, offset, key, value], in the order of arrival."""
        return [line[1:] for line in list(self.lines) if line[0] == "record"]

    @property
    def errors(self) -> list[str]:
        return [line[1] for line in list(self.lines) if line[0] == "error"]

    def readings(self) -> list[tuple[int, float, float]]:
        """Return (partition, arrival of the first record, arrival of the last) of each time that it had a partition."""
        readings: list[tuple[int, float, float]] = []
        reading: dict[int, tuple[float, float]] = {}
        for line, at in zip(list(self.lines), list(self.times), strict=False):
            if line[0] == "record":
                reading[line[1]] = (reading.get(line[1], (at, at))[0], at)
                continue
            held_partitions = set(reading) - set(line[1]) if line[0] == "revoked" else set(reading)
            held_partitions &= set(line[1]) if line[0] == "assigned" else held_partitions
            readings += [(partition, *reading.pop(partition)) for partition in set(reading) - held_partitions]
        return readings + [(partition, *times) for partition, times in reading.items()]

    @property
    def ended(self) -> int | None:
        """Return the exit status of the member. None while it runs."""
        return self._process.poll()

    def __str__(self) -> str:
        """Return what a failure has to say of it."""
        state = "runs" if self.ended is None else f"ended with status {self.ended}"
        rebalances = [f"{line[0]} {line[1]}" for line in list(self.lines) if line[0] in ("assigned", "revoked")]
        lines = [f"{self.name}, process {self._process.pid}, {state}; has {self.assigned}, read {len(self.records)}"]
        lines.append(f"    rebalances: {', '.join(rebalances[-12:]) or 'none'}")
        lines += [f"    error: {error}" for error in self.errors[-5:]]
        complaints = self._received()
        return "\n".join([*lines, *([f"    said: {complaints}"] if complaints else [])])

    def kill(self) -> None:
        """Kill the member. It does not leave the group."""
        self._process.kill()
        self._close()

    def leave(self) -> None:
        """Let the member leave its group. Raises AssertionError if it cannot do so properly."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._close()
        assert status in (0, view_console.STOPPED), f"did not leave its group: {self}"

    def _received(self) -> str:
        if not self._complaints.closed:
            size = os.fstat(self._complaints.fileno()).st_size
            at = max(size - PRINTED_BYTES, 0)
            self.complaints = os.pread(self._complaints.fileno(), PRINTED_BYTES, at).decode(errors="replace").strip()
        return self.complaints

    def _close(self) -> None:
        self._process.wait()
        self._reader.join()
        self._received()
        for pipe in (self._process.stdin, self._process.stdout, self._complaints):
            if pipe is not None:
                pipe.close()


class Group:
    """Members that come and go."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, assignor: str = "") -> None:
        self._arguments = (client, bootstrap, group, topic, assignor)
        self.members: list[Member] = []
        self.lost: list[Member] = []

    def join(self, count: int = 1) -> None:
        self.members += [Member(*self._arguments) for _ in range(count)]

    def kill(self) -> None:
        self.lost.append(self.members.pop(0))
        self.lost[-1].kill()

    def leave(self) -> None:
        self.lost.append(self.members.pop(0))
        self.lost[-1].leave()

    def close(self) -> None:
        """Let all members leave. Raises AssertionError if one could not do so properly."""
        failed = []
        while self.members:
            try:
                self.leave()
            except AssertionError as error:
                failed.append(str(error))
        assert not failed, "\n".join(failed)

    @property
    def values(self) -> set[str]:
        return {record[3] for member in (*self.members, *self.lost) for record in member.records}

    def __str__(self) -> str:
        """Return what a failure has to say of it."""
        ended = [f"(gone) {member}" for member in self.lost]
        return "\n".join([*map(str, self.members), *ended])

    def wait_assigned(self, partitions: int, limit_s: float = READ_S) -> None:
        """Wait until the members share all partitions, each with at least one if there are enough."""

        def shared() -> bool:
            parts = [member.assigned for member in self.members]
            fair = len(self.members) > partitions or all(parts)
            return fair and sorted(part for each in parts for part in each) == list(range(partitions))

        self._wait(shared, lambda: f"{partitions} partitions were not assigned", limit_s)

    def wait_read(self, values: Iterable[str], limit_s: float = READ_S) -> None:
        expected = set(values)
        self._wait(
            lambda: expected <= self.values,
            lambda: (
                f"{len(expected - self.values)} of {len(expected)} records are missing, {self._first_missing(expected)}"
            ),
            limit_s,
        )

    def _first_missing(self, expected: set[str]) -> str:
        return f"the first are {sorted(map(int, expected - self.values))[:5]}"

    def _wait(self, condition: Callable[[], bool], failure: Callable[[], str], limit_s: float) -> None:
        """Wait for a condition. Raises AssertionError with the state of each member, at once if one ended by itself."""
        end = time.monotonic() + limit_s
        while not condition():
            ended = [member for member in self.members if member.ended is not None]
            assert not ended, f"{failure()}: a member ended by itself\n{self}"
            assert time.monotonic() < end, f"{failure()} in {limit_s:.0f} s\n{self}"
            time.sleep(0.1)

    def check(self, slots: int) -> None:
        """Check that each record is in its slot, which one member has at a time, and that each key is in order at each
        member as long as that keeps its partitions."""
        self._check_owners()
        for member in (*self.members, *self.lost):
            assert member in self.lost or member.ended is None, f"ended by itself: {member}"
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

    def _check_owners(self) -> None:
        by_partition: dict[int, list[tuple[float, float, Member]]] = defaultdict(list)
        for member in (*self.members, *self.lost):
            for partition, first, last in member.readings():
                by_partition[partition].append((first, last, member))
        for partition, readings in by_partition.items():
            readings.sort(key=lambda each: each[:2])
            for (_, last, one), (first, until, other) in itertools.pairwise(readings):
                beside = min(last, until) - first
                both = f"{beside:.1f} s of partition {partition} at two members\n{one}\n{other}"
                assert one is other or beside < OVERLAP_S, both


def produce(raw: Raw, topic: Topic, first: int, last: int, keys: int = 97) -> list[str]:
    """Produce keyed records with the values first..last to the partitions of their keys. Return the values."""
    from kafka_share_proxy.wire.records import records

    by_partition: dict[int, list[Any]] = defaultdict(list)
    now = int(time.time() * 1000)
    for number in range(first, last):
        key = b"key-%d" % (number % keys)
        partition = (number % keys) % len(topic.leaders)
        by_partition[partition].append(records.Record(key, b"%d" % number, timestamp=now))
    for partition, partition_records in by_partition.items():
        for start in range(0, len(partition_records), 50):
            raw.append(topic, records.build_batch(0, partition_records[start : start + 50]), partition)
    return [str(number) for number in range(first, last)]


def committed(raw: Raw, group: str, topic: str, partitions: Sequence[int]) -> list[int]:
    """Return a group's committed offsets, from its coordinator; nothing while that loads."""
    response = raw.send_request(
        "OffsetFetch", 8, on=raw.on_coordinator(group), require_stable=False,
        groups=[{"group_id": group, "topics": [{"name": topic, "partition_indexes": list(partitions)}]}],
    )  # fmt: skip
    if response.groups[0].error_code:
        return []
    offsets = {part.partition_index: part.committed_offset for part in response.groups[0].topics[0].partitions}
    return [offsets[partition] for partition in partitions]
