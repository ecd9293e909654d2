"""Kafka's own SharePartition class (4.3.0) as a witness for the engine.

`python -m tests.sharegroups.model.oracle.kafka` plays seeded stories on it and on the engine, and writes what Kafka
said to golden.txt (by hand, at an upgrade; needs a JDK >= 17). Tests replay golden.txt on the engine, without any Java.

A story ends early, and is kept up to there, where the two part on purpose or where Kafka is wrong:

- a refused write may leave settled records at the start offset: Kafka passes them at its next write, the engine now;
- a lock that ended during a refused write: Kafka judges by the delivery limit of the decision, the engine by today's;
- after a reload Kafka lets the start offset stop earlier than the holes require;
- records the log lost to compaction: Kafka passes them at its next write, the engine now;
- acknowledging what was never tracked, where Kafka throws (NullPointerException: nothing tracked but the start offset
  inside the batch), or looks at the delivery in front of a hole;
- a full window and data that begin after it, where Kafka throws (IllegalArgumentException).
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from kafka_share_proxy.sharegroups.model.acquiring import ReadRecords
from kafka_share_proxy.sharegroups.model.offset_runs import ACKNOWLEDGED, UNREAD, LockIndex
from kafka_share_proxy.sharegroups.model.partition import Refusal, SharePartition, Transition
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot

from tests.sharegroups.model.world import Batch, Settings

HERE = Path(__file__).parent
GOLDEN = HERE / "golden.txt"
RELEASE = "4.3.0"
STORIES = 160
STEPS = 45
STORIES_PER_PROCESS = 500
"""Kafka keeps the metrics of every share partition it ever had: a process does not last for ever."""


def numbers(text: str) -> list[tuple[int, ...]]:
    """Read `1:2:3,4:5:6`."""
    return [tuple(map(int, part.split(":"))) for part in text.split(",")] if text else []


class Engine:
    """The engine with the oracle's commands: the same words in, the same words out."""

    def __init__(self) -> None:
        self.pending: dict[int, Transition] = {}
        self.writes = 0
        self.partition = SharePartition(0)
        self.settings = Settings()
        self.now_ms = 0

    def __call__(self, command: str) -> str:
        word, *words = command.split(" ")
        response: str = getattr(self, f"do_{word}")(*words)
        return response

    def do_new(self, start: str, limit: str, cap: str, lock_ms: str, batches: str = "") -> str:
        self.pending.clear()
        self.writes = self.now_ms = 0
        stored = tuple((first, last, state, count) for first, last, state, count in numbers(batches))
        self.partition = SharePartition.from_snapshot(ShareSnapshot(int(start), 1, -1, stored), locks=LockIndex())
        return self.do_set(limit, cap, lock_ms)

    def do_set(self, limit: str, cap: str, lock_ms: str) -> str:
        self.settings = Settings(int(lock_ms) / 1000, int(limit), int(cap))
        return "ok"

    def do_acquire(self, member: str, exact: str, size: str, records: str, fetch_offset: str, log: str = "") -> str:
        read = ReadRecords(int(fetch_offset), [Batch(first, last) for first, last in numbers(log)])
        got = self.partition.acquire(
            member, read, int(records), int(size), exact == "1", self.settings, self.now_ms / 1000
        )
        return " ".join(["ok", *[":".join(map(str, entry)) for entry in got.ranges]])

    def do_ack(self, member: str, batches: str) -> str:
        listed = []
        for batch in batches.split(","):
            first, last, types = batch.split(":")
            listed.append((int(first), int(last), [int(one) for one in types.split("/")]))
        return self._outcome(self.partition.decide_acknowledge(member, listed, True, self.settings, self.now_ms / 1000))

    def do_release(self, member: str) -> str:
        return self._outcome(self.partition.decide_release(member, self.settings))

    def _outcome(self, decided: Transition | Refusal | None) -> str:
        if isinstance(decided, Refusal):
            return f"error {decided.error.value}"
        if decided is None or not decided.changes:
            return "done"
        self.pending[self.writes] = decided
        self.writes += 1
        return f"pending {self.writes - 1}"

    def do_complete(self, write: str, well: str) -> str:
        transition = self.pending.pop(int(write))
        if well == "1":
            self.partition.apply(transition)
        else:
            self.partition.revert(transition, self.now_ms / 1000, self.settings)
        return "ok"

    def do_advance(self, ms: str) -> str:
        self.now_ms += int(ms)
        for runs in self.partition.index.expired(self.now_ms / 1000).values():
            transition = self.partition.expire(runs, self.settings, self.now_ms / 1000)
            if transition is not None:
                self.partition.apply(transition)
        return "ok"

    def do_state(self) -> str:
        partition = self.partition
        # Kafka's end offset of an empty window is the start offset itself.
        end_offset = partition.end_offset if partition.runs else partition.start_offset
        can_acquire = str(partition.acquirable_from(self.settings) is not None).lower()
        out = [f"ok {partition.start_offset} {end_offset} {partition.next_fetch_offset()} {can_acquire}"]
        for run in partition.runs:
            if run.state != UNREAD:
                pending = run.pending is not None
                state_text = (
                    f"{run.target}:{run.count}::true" if pending else f"{run.state}:{run.count}:{run.owner or ''}:false"
                )
                out += [f"{offset}:{state_text}" for offset in range(run.first, run.last + 1)]
        return " ".join(out)


def compact(state: str) -> str:
    """Return a state response without offsets below the start offset, equal neighbours as first-last."""
    words = state.split(" ")
    start = int(words[1])
    runs: list[tuple[int, int, str]] = []
    for word in words[5:]:
        offset, state_text = word.split(":", 1)
        if int(offset) < start:
            continue
        if runs and runs[-1][1] + 1 == int(offset) and runs[-1][2] == state_text:
            runs[-1] = (runs[-1][0], int(offset), state_text)
        else:
            runs.append((int(offset), int(offset), state_text))
    return " ".join([*words[1:5], *[f"{first}-{last}:{text}" for first, last, text in runs]])


class Kafka:
    """The class itself, in a Java process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")


@contextmanager
def running() -> Iterator[Kafka]:
    """Compile and start the oracle."""
    sys.path.insert(0, str(HERE.parents[3] / "proxy"))
    from kafka_share_proxy.localkafka.jars import class_path
    from kafka_share_proxy.localkafka.java import find_java

    with TemporaryDirectory() as folder:
        jars = class_path(RELEASE)
        source = str(HERE / "SharePartitionOracle.java")
        compiler = ["javac", "-proc:none", "-nowarn", "-cp", jars, "-d", folder, source]
        subprocess.run(compiler, check=True, capture_output=True, timeout=120)
        java = [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{folder}:{jars}"]
        process = subprocess.Popen(
            [*java, "kafka.server.share.SharePartitionOracle"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
        )  # fmt: skip
        with process:
            yield Kafka(process)


def _passed(theirs: str, ours: str) -> bool:
    """True if the engine's start offset merely passed settled records that Kafka still keeps."""
    start = int(ours.split(" ")[0])
    words = [(int(word.split("-")[0]), word) for word in theirs.split(" ")[4:]]
    remaining_words = [word for first, word in words if first >= start]
    settled = [int(word.split(":")[1]) >= ACKNOWLEDGED for first, word in words if first < start]
    return all(settled) and bool(settled) and remaining_words == ours.split(" ")[4:]


class Parted(Exception):
    """Kafka and the engine part here, for one of the reasons at the top."""


class Story:
    """One seeded story, run on both concurrently."""

    def __init__(self, kafka: Kafka, seed: int) -> None:
        self.kafka, self.engine, self.random = kafka, Engine(), random.Random(seed)
        self.holes, self.restarts, self.changes = seed % 4 == 1, seed % 4 == 2, seed % 4 == 3
        self.lines: list[str] = []
        self.log: list[Batch] = []
        self.log_end = 0
        self.settings = Settings(30.0, self.pick((2, 3, 4, 5, 5, 7, 10)), self.pick((5, 12, 20, 40)))
        self.tell(f"new 0 {self._settings()}")

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, options: tuple[int, ...]) -> int:
        return self.random.choice(options)

    def _settings(self) -> str:
        s = self.settings
        return f"{s.delivery_count_limit} {s.max_record_locks} {round(s.lock_duration_s * 1000)}"

    def tell(self, command: str) -> None:
        """Let both do it; keep what Kafka said."""
        theirs, ours = self.kafka(command), self.engine(command)
        if theirs != ours:
            self._part(self._responds_differently(command, theirs), command, theirs, ours)
        theirs_now, ours_now = compact(self.kafka("state")), compact(self.engine("state"))
        if theirs_now != ours_now:
            refused = command.startswith("complete") and command.endswith(" 0")
            known = (self.changes and refused) or _passed(theirs_now, ours_now)
            self._part(known, command, theirs_now, ours_now)
        self.lines.append(f"{command}\t{theirs}\t{theirs_now}")

    def _responds_differently(self, command: str, theirs: str) -> bool:
        """Return True if Kafka is known to respond to this command as it does."""
        if command.startswith("acquire"):
            return theirs.startswith("crash") and "inconsistent range" in theirs
        if not command.startswith("ack"):
            return False
        if theirs.startswith("crash"):
            return "NullPointerException" in theirs
        firsts = [int(batch.split(":")[0]) for batch in command.split(" ")[2].split(",")]
        runs = [run for run in self.engine.partition.runs if run.state != UNREAD]
        return not all(any(run.first <= first <= run.last for run in runs) for first in firsts)

    def _part(self, known: bool, command: str, theirs: str, ours: str) -> NoReturn:
        if known:
            raise Parted(f"{command}: kafka {theirs}, engine {ours}")
        raise AssertionError("\n".join([*self.lines, command, f"kafka  {theirs}", f"engine {ours}"]))

    def step(self) -> None:
        actions = [self.append] * 3 + [self.fetch] * 6 + [self.acknowledge] * 7 + [self.complete] * 6
        actions += [self.release, self.advance, self.advance]
        actions += [self.restart] * self.restarts + [self.configure] * self.changes
        self.random.choice(actions)()

    def append(self) -> None:
        base = self.log_end + (self.number(1, 3) if self.holes and self.number(1, 5) == 1 else 0)
        self.log_end = base + self.number(1, 8)
        self.log.append(Batch(base, self.log_end - 1))

    def fetch(self) -> None:
        partition = self.engine.partition
        offset = partition.next_fetch_offset()
        batches = [batch for batch in self.log if batch.last_offset >= offset][: self.number(1, 4)]
        if batches and partition.acquirable_from(self.engine.settings) is not None:
            log = ",".join(f"{batch.base_offset}:{batch.last_offset}" for batch in batches)
            member, exact = self.random.choice(("ann", "bob")), int(self.number(1, 3) == 1)
            self.tell(f"acquire {member} {exact} {self.number(1, 6)} {self.number(1, 12)} {offset} {log}")

    def acknowledge(self) -> None:
        held = self.engine.partition.locks()
        member, batches, below = self.random.choice(("ann", "bob")), [], 0
        for _ in range(self.number(1, 3)):
            if held and self.number(1, 6) > 1:
                lock = self.random.choice(held)
                member = member if batches else lock.member_id
                first, last = lock.first, lock.last
                if self.number(1, 2) == 1:
                    first = self.number(first, last)
                    last = self.number(first, last)
                last += self.number(1, 3) if self.number(1, 8) == 1 else 0
            else:
                first = max(0, self.engine.partition.start_offset + self.number(-3, 6))
                last = first + self.number(0, 5)
            if first < below:
                continue
            below = last
            count = 1 if self.number(1, 3) > 1 else last - first + 1
            types = "/".join(str(self.number(0, 4)) for _ in range(count))
            batches.append(f"{first}:{last}:{types}")
        self.tell(f"ack {member} {','.join(batches)}")

    def complete(self) -> None:
        if self.engine.pending:
            write = self.random.choice(list(self.engine.pending))
            self.tell(f"complete {write} {int(self.number(1, 6) > 1)}")

    def release(self) -> None:
        self.tell(f"release {self.random.choice(('ann', 'bob'))}")

    def advance(self) -> None:
        self.tell(f"advance {self.pick((500, 7000, 12000, 31000))}")

    def configure(self) -> None:
        self.settings = replace(
            self.settings,
            lock_duration_s=float(self.pick((15, 30, 45))),
            delivery_count_limit=self.pick((2, 3, 4, 5, 7, 10)),
            max_record_locks=self.pick((5, 12, 20, 40)),
        )
        self.tell(f"set {self._settings()}")

    def restart(self) -> None:
        snapshot = self.engine.partition.snapshot()
        batches = ",".join(":".join(map(str, batch)) for batch in snapshot.batches)
        self.tell(f"new {snapshot.start_offset} {self._settings()} {batches}".rstrip())


def record(kafka: Kafka, seed: int) -> tuple[list[str], str]:
    """The lines of one story, and why it ended early."""
    story = Story(kafka, seed)
    try:
        for _ in range(STEPS):
            story.step()
    except Parted as parted:
        return story.lines, str(parted)
    return story.lines, ""


def main() -> None:
    """Write golden.txt; more stories than it holds when a number is given: `... 2000` only compares."""
    stories = int(sys.argv[1]) if sys.argv[1:] else STORIES
    recorded: list[str] = []
    ended = 0
    for start in range(0, stories, STORIES_PER_PROCESS):
        with running() as kafka:
            for seed in range(start, min(stories, start + STORIES_PER_PROCESS)):
                lines, reason = record(kafka, seed)
                recorded += lines
                ended += bool(reason)
    if not sys.argv[1:]:
        GOLDEN.write_text("\n".join(recorded) + "\n", encoding="utf-8")
    print(f"{stories} stories, {len(recorded)} commands; {ended} ended early")


if __name__ == "__main__":
    main()
