"""Compare the cost of individual commits with plain ones: `python -m tests.bench.individual_commits`; about 6 minutes.

Real brokers of both releases, one proxy in front of each with its default settings; 3.9.1 with the coordinator that it
has by default, and with the one of KIP-848, which gathers commits for 10 ms. Four kinds of commits alternate in one
run: plain ones of an unknown group, past the proxy and through it; plain ones of a group with ranges; individual ones,
each of which extends a range. First one client, one commit at a time (medians); then 16 clients, each in a separate
group, as fast as possible. Requests are encoded before; clients send and receive bytes. The exit status is 1 when
something that must be reached is not.

Where the time goes is shown by the CPU time that broker, proxy and clients take for a commit of the 16 clients, and by
how many commits share an append. For comparison the lower bound (`commits_at_the_least`): plain commits through the
proxy, each with the appends of an individual one in a Produce directly to the broker. So it has all that individual
commits ask of a broker, and nothing of what they ask of a proxy: no proxy is faster. With ranges in the metadata the
lower bound is a relay in C (`relay.c`) that carries what the proxy would send: plain commits with the same offset and
metadata. Brokers run as in production, after a round that does not count. On a machine with two cores broker, proxy and
clients share these.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafka_share_proxy.commits.state_records import PARTITIONS
from kafka_share_proxy.localkafka.addresses import free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.codec import frames

from tests.bench import forwarding
from tests.bench.commits_at_the_least import Appends, CommitsAndAppends, one_after_the_other, response
from tests.bench.measuring import cpu_seconds, middle
from tests.support.brokers import COORDINATORS, FULL_SPEED, Running
from tests.support.offset_commits import offset_commit
from tests.support.raw import Raw, Topic, until

OFFSET_COMMIT, VERSION = 8, 8
CLIENTS = 16
FLOOR = "floor"
RELAY = "relay"
FLOORS = {"topic": FLOOR, "metadata": RELAY}
"""`commits.state` -> the kind that is its lower bound."""
KINDS = ("broker", "plain", "known", "individual", FLOOR, RELAY)
WORDS = {
    "broker": "plain, straight to the broker",
    "plain": "plain through the proxy",
    "known": "plain, of a group with ranges",
    "individual": "individual",
    FLOOR: "floor: plain, and appends",
    RELAY: "floor: same text by a relay",
}
ROUND_TIMES = 3
"""Factor by which a client of 16 commits as often as a single one: a round takes seconds."""
STATES = ("topic", "metadata")
FEWEST = {"topic": 0.8, "metadata": 0.85}
"""Must: commits/s of 16 clients that commit individually, against plain ones through the proxy."""
MORE_MS = 0.05
"""Must: milliseconds that one client waits longer than for a plain commit, with ranges in the metadata."""


def commit(group: str, topic: str, number: int, offset: int, text: str = "") -> bytes:
    """Build an OffsetCommit of one partition without a member."""
    return bytes(frames.request(OFFSET_COMMIT, VERSION, number, "bench", offset_commit(group, topic, offset, text)))


def requests(kind: str, group: str, topic: str, count: int) -> list[bytes]:
    """Commits of one client, one after the other."""
    if kind == "individual":
        return [commit(group, topic, n, 0, f"ic/1;{n + 10}-{n + 10}") for n in range(count)]
    if kind == RELAY:
        return [commit(group, topic, n, 0, f"ic/1;9-{n + 10}") for n in range(count)]
    return [commit(group, topic, n, n + 1) for n in range(count)]


class Client:
    """A connection to the coordinator of a group, or to the relay in front of the only broker."""

    def __init__(self, bootstrap: str, group: str, relay_port: int | None = None) -> None:
        self._raw = Raw(bootstrap)
        coordinator = self._raw.on_coordinator(group)._socket
        self.socket = coordinator if relay_port is None else socket.create_connection(("127.0.0.1", relay_port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self.socket.close()
        self._raw.close()

    def send(self, request: bytes) -> None:
        """Send one commit and expect success."""
        self.socket.sendall(request)
        response = b""
        while len(response) < 4 or len(response) < 4 + int.from_bytes(response[:4], "big"):
            response += self.socket.recv(4096)
        error = int.from_bytes(response[-5:-3], "big", signed=True)  # before the tags of partition, topic and response
        if error:
            raise AssertionError(f"a commit was refused with {error}")


@dataclass
class Side:
    """One coordinator."""

    name: str
    broker: str
    proxy: str
    pids: Mapping[str, int]
    """Process ids of broker and proxy; clients are in this process."""
    appends: Callable[[], float]
    """Produce requests of the proxy so far."""
    topic: Topic
    floor_topic: Topic
    """Takes the place of the topic of ranges where there is no proxy."""
    numbers: Iterator[int]
    relay_port: int
    latency_ms: dict[str, list[float]] = field(default_factory=dict)
    per_second: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Kind -> process -> CPU of a commit."""
    per_append: dict[str, list[float]] = field(default_factory=dict)
    """Commits that shared an append."""

    def client(self, kind: str) -> tuple[Client, str]:
        """Return a client and its group, which has one range if it should be known."""
        group = f"{kind}-{next(self.numbers)}"
        bootstrap = self.broker if kind in ("broker", RELAY) else self.proxy
        client = Client(bootstrap, group, self.relay_port if kind == RELAY else None)
        if kind == "known":
            client.send(commit(group, self.topic.name, 1, 0, "ic/1;1000000-1000000"))
        if kind == "individual":
            client.send(commit(group, self.topic.name, 1, 0, "ic/1;9-9"))
        return client, group

    def cpu_s(self) -> dict[str, float]:
        """CPU time so far."""
        return {name: cpu_seconds(pid) for name, pid in self.pids.items()} | {"clients": time.process_time()}

    def median(self, figures: Mapping[str, list[float]], kind: str) -> float:
        """Not a number where nothing was measured."""
        return middle(figures.get(kind, ()))


def one_at_a_time(side: Side, kind: str, count: int) -> None:
    """Milliseconds of each commit of one client."""
    client, group = side.client(kind)
    took = side.latency_ms.setdefault(kind, [])
    for request in requests(kind, group, side.topic.name, count):
        began = time.perf_counter()
        client.send(request)
        took.append((time.perf_counter() - began) * 1e3)
    client.close()


def at_the_least(side: Side, count: int) -> None:
    """A plain commit of one client, then an append of what would be appended of an individual one."""
    client, group = side.client(FLOOR)
    with Raw(side.broker) as raw:
        appends = Appends(raw, side.floor_topic, [group], side.topic.name)
        took = one_after_the_other(client.socket, appends, requests(FLOOR, group, side.topic.name, count))
    side.latency_ms.setdefault(FLOOR, []).append(took)
    client.close()


def threads(work: Sequence[tuple[Client, list[bytes]]]) -> Callable[[], None]:
    """A thread for each client; what is given starts them, and returns when all are done."""
    ready = threading.Barrier(len(work) + 1)

    def run(client: Client, mine: list[bytes]) -> None:
        ready.wait()
        for request in mine:
            client.send(request)

    client_threads = [threading.Thread(target=run, args=each) for each in work]
    for thread in client_threads:
        thread.start()

    def go() -> None:
        ready.wait()
        for thread in client_threads:
            thread.join()

    return go


def all_at_once(side: Side, kind: str, count: int, *, counts: bool = True) -> None:
    """Commits/s of all clients together, and what they cost."""
    clients = [side.client(kind) for _ in range(CLIENTS)]
    work = [(client, requests(kind, group, side.topic.name, count)) for client, group in clients]
    with Raw(side.broker) as raw:
        if kind == FLOOR:
            appends = Appends(raw, side.floor_topic, [group for _, group in clients], side.topic.name)
            go = CommitsAndAppends([client.socket for client, _ in work], appends, [each for _, each in work]).run
        else:
            go = threads(work)
        sent, cpu, began = side.appends(), side.cpu_s(), time.perf_counter()
        go()
        took, after = time.perf_counter() - began, side.cpu_s()
        sent = appends.sent if kind == FLOOR else side.appends() - sent
    commits = CLIENTS * count
    if counts:
        side.per_second.setdefault(kind, []).append(commits / took)
        for name, before in cpu.items():
            used_us = (after[name] - before) * 1e6 / commits
            side.cpu_us.setdefault(kind, {}).setdefault(name, []).append(used_us)
        if sent:
            side.per_append.setdefault(kind, []).append(commits / sent)
    for client, _ in work:
        client.close()


def produce_ms(side: Side, count: int) -> float:
    """The median of one small Produce through the proxy, encoded before as commits are."""
    took = []
    with Raw(side.proxy) as raw:
        appends = Appends(raw, side.floor_topic, ["produce"], side.topic.name)
        request = appends.encoded([0])
        for _ in range(count):
            began = time.perf_counter()
            appends.socket.sendall(request)
            response(appends.socket)
            took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def rounds_of(side: Side, rounds: int, count: int, kinds: Sequence[str]) -> None:
    """All kinds take turns; the first round of 16 clients does not count: brokers compile what they run often."""
    for number in range(rounds + 1):
        for kind in kinds:
            if kind == FLOOR:
                at_the_least(side, count)
            else:
                one_at_a_time(side, kind, count)
        for kind in kinds:
            all_at_once(side, kind, ROUND_TIMES * count, counts=number > 0)


def line(side: Side, kind: str) -> str:
    """Return what is printed of one kind."""
    median_ms, rate = side.median(side.latency_ms, kind), side.median(side.per_second, kind)
    times_ms = median_ms / side.median(side.latency_ms, "plain")
    times = rate / side.median(side.per_second, "plain")
    cpu = " ".join(f"{name} {middle(used):4.0f}" for name, used in side.cpu_us[kind].items())
    text = f"{side.name:22} {WORDS[kind]:30} {median_ms:6.2f} ms {times_ms:5.2f}x {rate:7.0f}/s {times:5.2f}x  {cpu} us"
    per_append = side.median(side.per_append, kind)
    return text if math.isnan(per_append) else f"{text}  {per_append:.1f} an append"


def measure(
    side: Side,
    rounds: int,
    count: int,
    log: Callable[[str], None],
    kinds: Sequence[str] = KINDS,
    fewest: float = FEWEST["topic"],
) -> bool:
    """Print the figures of one side; whether what must be reached is."""
    rounds_of(side, rounds, count, kinds)
    append_ms = produce_ms(side, count)
    for kind in kinds:
        log(line(side, kind))
    if "individual" not in kinds:
        return True
    more_ms = side.median(side.latency_ms, "individual") - side.median(side.latency_ms, "plain")
    share = side.median(side.per_second, "individual") / side.median(side.per_second, "plain")
    text, bounds = f"{side.name} individual: {more_ms:.2f} ms more than plain", f"must: {fewest:g}x"
    if FLOOR in kinds:
        floor_ms = side.median(side.latency_ms, FLOOR) - side.median(side.latency_ms, "plain")
        at_most = side.median(side.per_second, FLOOR) / side.median(side.per_second, "plain")
        text += f"; one Produce takes {append_ms:.2f} ms, behind a commit {floor_ms:.2f} ms"
        bounds += f"; floor: {at_most:.2f}x"
    else:
        floor_ms = side.median(side.latency_ms, RELAY) - side.median(side.latency_ms, "plain")
        at_most = side.median(side.per_second, RELAY) / side.median(side.per_second, "plain")
        text += f" (must: {MORE_MS:g} ms); by a relay: {floor_ms:.2f} ms"
        bounds += f"; by a relay: {at_most:.2f}x"
    log(text)
    log(f"{side.name} individual, {CLIENTS} clients: {share:.2f}x of plain ({bounds})")
    return share >= fewest and (FLOOR in kinds or more_ms <= MORE_MS)


def appends_of(front: Front) -> float:
    """Produce requests that the proxy has sent for its state."""
    match = re.search(r"^ksp_commit_append_requests_total (\S+)", front.send_request("/metrics")[1], re.MULTILINE)
    return float(match[1]) if match else math.nan


@contextmanager
def side_of(name: str, state: str, relay: Path) -> Iterator[Side]:
    """A broker, a proxy with this `commits.state` and a relay in front of it."""
    release, properties = COORDINATORS[name]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = Running(folder)
        stack.callback(running.close)
        kafka = running.cluster(release, java_options=FULL_SPEED, properties=properties)
        front = running.front(kafka.bootstrap, {"commits": {"state": state}})
        until(lambda: front.send_request("/readyz/commits")[0], "ranges to be loaded")
        with Raw(front.bootstrap) as raw:
            topic, floor_topic = raw.create_topic("bench"), raw.create_topic("bench-floor", PARTITIONS)
        broker, proxy = kafka.nodes[0].child, front.child
        assert broker is not None
        assert proxy is not None
        (relay_port,) = free_ports(1)
        relaying = Child([str(relay), str(relay_port), str(kafka.nodes[0].port)], folder / "relay.log")
        stack.callback(relaying.kill)
        forwarding.wait_for(relay_port)
        pids = {"broker": broker.pid, "proxy": proxy.pid}
        yield Side(
            name=f"{name} {state}",
            broker=kafka.bootstrap,
            proxy=front.bootstrap,
            pids=pids,
            appends=partial(appends_of, front),
            topic=topic,
            floor_topic=floor_topic,
            numbers=iter(range(1_000_000)),
            relay_port=relay_port,
        )


def main() -> None:
    """All sides, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=200, help="of one client in one round")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="only these")
    parser.add_argument("--sides", nargs="+", choices=COORDINATORS, default=list(COORDINATORS), help="only these")
    parser.add_argument("--states", nargs="+", choices=STATES, default=STATES, help="of `commits.state`")
    options = parser.parse_args()
    reached = True
    with tempfile.TemporaryDirectory() as folder:
        relay = forwarding.build(Path(folder), "relay")
        for name, state in itertools.product(options.sides, options.states):
            floors = [floor for each, floor in FLOORS.items() if each != state]
            kinds = [kind for kind in options.kinds if kind not in floors]
            with side_of(name, state, relay) as side:
                log = partial(print, flush=True)
                reached &= measure(side, options.rounds, options.commits, log, kinds, FEWEST[state])
    sys.exit(not reached)


if __name__ == "__main__":
    main()
