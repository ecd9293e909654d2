"""What individual commits cost beside plain ones: `python -m tests.bench.individual_commits`; about 2 minutes.

Real brokers of both releases, one proxy in front of each with its default settings. Four kinds of commits take turns in
one run: plain ones of a group that nobody knows, past the proxy and through it; plain ones of a group with ranges;
individual ones, each of which makes a range longer. First one client, one commit at a time (medians); then 16 clients,
each of a group of its own, as fast as they can. Requests are encoded before; clients send and receive bytes. The exit
status is 1 when something that must be reached is not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from proxy.wire import frames, registry
from tests.support.brokers import NEW, OLD, Running
from tests.support.raw import Raw, Topic, until

OFFSET_COMMIT, VERSION = 8, 8
CLIENTS = 16
KINDS = ("broker", "plain", "known", "individual")
WORDS = {
    "broker": "plain, straight to the broker",
    "plain": "plain through the proxy",
    "known": "plain, of a group with ranges",
    "individual": "individual",
}
FEWEST = 0.8
"""Must: commits/s of 16 clients that commit individually, against plain ones through the proxy."""


def commit(group: str, topic: str, number: int, offset: int, text: str = "") -> bytes:
    """An OffsetCommit of one partition, of nobody in particular."""
    request = registry.message("OffsetCommitRequest")
    partition = request.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=text
    )
    message = request(group_id=group, topics=[request.OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    return bytes(frames.request(OFFSET_COMMIT, VERSION, number, "bench", message))


def requests(kind: str, group: str, topic: str, count: int) -> list[bytes]:
    """Commits of one client, one after the other."""
    if kind == "individual":
        return [commit(group, topic, n, 0, f"ic/1;{n + 10}-{n + 10}") for n in range(count)]
    return [commit(group, topic, n, n + 1) for n in range(count)]


class Client:
    """A connection to the coordinator of a group."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._raw = Raw(bootstrap)
        self._socket = self._raw.on_coordinator(group)._socket

    def close(self) -> None:
        self._raw.close()

    def send(self, request: bytes) -> None:
        """One commit, answered without an error."""
        self._socket.sendall(request)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            answer += self._socket.recv(4096)
        error = int.from_bytes(answer[-5:-3], "big", signed=True)  # before the tags of partition, topic and answer
        if error:
            raise AssertionError(f"a commit was refused with {error}")


@dataclass
class Side:
    """One release."""

    release: str
    broker: str
    proxy: str
    topic: Topic
    numbers: Iterator[int]
    latency_ms: dict[str, list[float]] = field(default_factory=dict)
    per_second: dict[str, list[float]] = field(default_factory=dict)

    def client(self, kind: str) -> tuple[Client, str]:
        """A client and its group, which has one range where it is to be known."""
        group = f"{kind}-{next(self.numbers)}"
        made = Client(self.broker if kind == "broker" else self.proxy, group)
        if kind == "known":
            made.send(commit(group, self.topic.name, 1, 0, "ic/1;1000000-1000000"))
        if kind == "individual":
            made.send(commit(group, self.topic.name, 1, 0, "ic/1;9-9"))
        return made, group


def one_at_a_time(side: Side, kind: str, count: int) -> None:
    """Milliseconds of each commit of one client."""
    client, group = side.client(kind)
    took = side.latency_ms.setdefault(kind, [])
    for request in requests(kind, group, side.topic.name, count):
        began = time.perf_counter()
        client.send(request)
        took.append((time.perf_counter() - began) * 1e3)
    client.close()


def all_at_once(side: Side, kind: str, count: int) -> None:
    """Commits/s of all clients together."""
    made = [side.client(kind) for _ in range(CLIENTS)]
    work = [(client, requests(kind, group, side.topic.name, count)) for client, group in made]
    ready = threading.Barrier(CLIENTS + 1)

    def run(client: Client, mine: list[bytes]) -> None:
        ready.wait()
        for request in mine:
            client.send(request)

    threads = [threading.Thread(target=run, args=each) for each in work]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    side.per_second.setdefault(kind, []).append(CLIENTS * count / (time.perf_counter() - began))
    for client, _ in work:
        client.close()


def produce_ms(side: Side, count: int) -> float:
    """The median of one small append, straight to the broker: what storing a range costs at least."""
    took = []
    with Raw(side.broker) as raw:
        for _ in range(count):
            began = time.perf_counter()
            raw.produce(side.topic, [b"x" * 100])
            took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def measure(side: Side, rounds: int, count: int, say: Callable[[str], None]) -> bool:
    """Print the figures of one release; whether what must be reached is."""
    for _ in range(rounds):
        for kind in KINDS:
            one_at_a_time(side, kind, count)
        for kind in KINDS:
            all_at_once(side, kind, count)
    append_ms = produce_ms(side, count)
    base_ms = statistics.median(side.latency_ms["plain"])
    base_rate = statistics.median(side.per_second["plain"])
    for kind in KINDS:
        median_ms, rate = statistics.median(side.latency_ms[kind]), statistics.median(side.per_second[kind])
        say(
            f"{side.release} {WORDS[kind]:32} {median_ms:7.2f} ms {median_ms / base_ms:5.2f}x"
            f" {rate:8.0f}/s {rate / base_rate:5.2f}x"
        )
    more_ms = statistics.median(side.latency_ms["individual"]) - base_ms
    share = statistics.median(side.per_second["individual"]) / base_rate
    say(f"{side.release} individual: {more_ms:.2f} ms more than plain; one append takes {append_ms:.2f} ms")
    say(f"{side.release} individual, {CLIENTS} clients: {share:.2f}x of plain (must: {FEWEST:g}x)")
    return share >= FEWEST


def main() -> None:
    """Both releases, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=200, help="of one client in one round")
    parser.add_argument("--releases", nargs="+", default=[OLD, NEW])
    options = parser.parse_args()
    reached = True
    for release in options.releases:
        with ExitStack() as stack:
            running = Running(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            stack.callback(running.close)
            kafka = running.cluster(release)
            front = running.front(kafka.bootstrap)
            until(lambda front=front: front.ask("/readyz/commits")[0], "ranges to be loaded")
            with Raw(front.bootstrap) as raw:
                topic = raw.create_topic("bench")
            side = Side(release, kafka.bootstrap, front.bootstrap, topic, iter(range(1_000_000)))
            reached &= measure(side, options.rounds, options.commits, lambda line: print(line, flush=True))
    sys.exit(not reached)


if __name__ == "__main__":
    main()
