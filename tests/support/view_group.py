"""A group of members, each a process of its own, that read one view; and what must be true of what they got."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from proxy.hashing import hash_of_record
from tests.support.raw import Raw, Topic, until

CHECKOUT = Path(__file__).resolve().parents[2]
READ_S = 60.0


class Member:
    """One process."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, assignor: str = "") -> None:
        """`client`: of `view_member`, or the path of a script for Node that takes the next three arguments."""
        self.lines: list[list[Any]] = []
        program = (
            ["node", client] if client.endswith(".js") else [sys.executable, "-m", "tests.support.view_member", client]
        )
        arguments = [*program, bootstrap, group, topic, *([assignor] if assignor else [])]
        self._process = subprocess.Popen(
            arguments, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
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

    def kill(self) -> None:
        """Gone without a word."""
        self._process.kill()
        self._close()

    def leave(self) -> None:
        """Leaves its group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._close()

    def _close(self) -> None:
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
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
        while self.members:
            self.leave()

    @property
    def values(self) -> set[str]:
        return {record[3] for member in (*self.members, *self.gone) for record in member.records}

    def wait_assigned(self, partitions: int, limit_s: float = READ_S) -> None:
        """Until the members share all partitions, each with one at least if there are enough."""

        def shared() -> bool:
            parts = [member.assigned for member in self.members]
            fair = len(self.members) > partitions or all(parts)
            return fair and sorted(part for each in parts for part in each) == list(range(partitions))

        until(shared, f"{partitions} partitions to be assigned", limit_s)

    def wait_read(self, values: Iterable[str], limit_s: float = READ_S) -> None:
        wanted = set(values)
        end = time.monotonic() + limit_s
        while missing := wanted - self.values:
            told = [(m.assigned, len(m.records), m.errors[:3]) for m in self.members]
            assert time.monotonic() < end, f"{len(missing)} of {len(wanted)} records did not come: {told}"
            time.sleep(0.1)

    def check(self, slots: int) -> None:
        """Each record in its slot; each key in order at each member, as long as that keeps its partitions."""
        for member in (*self.members, *self.gone):
            last: dict[tuple[int, str], int] = {}
            for line in list(member.lines):
                if line[0] == "assigned":
                    last = {place: offset for place, offset in last.items() if place[0] in line[1]}
                elif line[0] == "record":
                    _, partition, offset, key, _ = line
                    assert hash_of_record(key.encode(), offset) * slots >> 32 == partition % slots, line
                    if (partition, key) in last:
                        assert offset > last[partition, key], f"{key} went back: {line}"
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
