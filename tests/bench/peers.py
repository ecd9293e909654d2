"""Measure the overhead of a client whose proxy does not own its group: acquire and acknowledge, one at a time, at
either proxy.

    python -m tests.bench.peers [--rounds 5] [--seconds 1]

Two proxies of one fleet in front of one broker without share groups, one client. Rounds at the owner and at the other
proxy take turns; medians of the rounds are printed, with the ratio.

A ShareFetch that requests nothing shows what the exchange between the two proxies takes: one request, one response,
and two processes that wake. The floor is the time at the owner with one such exchange. What is above it is done twice,
or in further exchanges.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.brokers import OLD, Running
from tests.support.fleet import Fleet, elsewhere
from tests.support.worlds import ACCEPT, Member, World

RECORDS_AT_ONCE = 10
PRODUCES = 250
VALUE = b"v" * 1024


def play(member: Member, topic: object, seconds: float) -> tuple[list[float], list[float], list[float], int]:
    """(times of fetches, of acknowledgements, and of fetches of nothing; records) of this many seconds."""
    fetches, acks, empty, records = list[float](), list[float](), list[float](), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        response = member.fetch(topic, silent=True, records=RECORDS_AT_ONCE, batch=RECORDS_AT_ONCE)  # type: ignore[arg-type]
        assert response.error == 0, response.plain
        fetched = time.perf_counter()
        fetches.append(fetched - began)
        member.fetch(topic, silent=True, records=0, max_bytes=0, wait_ms=0)  # type: ignore[arg-type]
        empty.append(time.perf_counter() - fetched)
        for first, last, _ in response.acquired(topic):  # type: ignore[arg-type]
            began = time.perf_counter()
            member.acknowledge((topic, 0, first, last, ACCEPT), silent=True)  # type: ignore[arg-type]
            acks.append(time.perf_counter() - began)
            records += last - first + 1
    return fetches, acks, empty, records


def owner_of(fleet: Fleet, world: World) -> tuple[str, str]:
    """A group, and the proxy that owns it."""
    group = world.group("bench")
    Member(world, group, "probe").heartbeat(0, topics=["none"], silent=True)
    return group, next(name for name in fleet.fronts if fleet.fronts[name].send_request(f"/groups/{group}")[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        try:
            measure(Fleet(running, running.cluster(OLD)), options.rounds, options.seconds)
        finally:
            running.close()


def measure(fleet: Fleet, rounds: int, seconds: float) -> None:
    fleet.start("a")
    fleet.start("b")
    fleet.settled("a", "b")
    one = fleet.world("a", "bench")
    group, owner = owner_of(fleet, one)
    other = "b" if owner == "a" else "a"
    topic = one.topic()
    for _ in range(PRODUCES):
        one.raw.produce(topic, *[[VALUE] * RECORDS_AT_ONCE] * 20)
    members = {}
    for name in (owner, other):
        world = fleet.world(name, "bench")
        members[name] = elsewhere(world, Member(one, group, name), name)
    measurements: dict[str, list[tuple[float, float, float, float]]] = {owner: [], other: []}
    for number in range(rounds):
        for name, member in sorted(members.items(), reverse=bool(number % 2)):
            member.disconnect()
            member.epoch = 0
            *times, records = play(member, topic, seconds)
            if times[1]:
                fetch, ack, empty = (statistics.median(each) * 1e3 for each in times)
                measurements[name].append((fetch, ack, empty, records / seconds))
    rows = {name: tuple(map(statistics.median, zip(*each, strict=True))) for name, each in measurements.items()}
    for name, words in ((owner, "at the owner"), (other, "at the other")):
        show(words, "{:6.2f} ms", "{:9,.0f} records/s", rows[name])
    show("ratio", "{:6.2f}   ", "{:9.2f}", [rows[other][n] / rows[owner][n] for n in range(4)])
    exchange = rows[other][2] - rows[owner][2]
    floors = [1 + exchange / rows[owner][n] for n in range(2)]
    print(f"{'floor':13} fetch {floors[0]:6.2f}     acknowledge {floors[1]:6.2f}     (one exchange: {exchange:.2f} ms)")


def show(words: str, time_format: str, rate_format: str, row: Sequence[float]) -> None:
    """Print times of fetch, acknowledgement and empty fetch, and a rate."""
    fetch, ack, empty = map(time_format.format, row[:3])
    print(f"{words:13} fetch {fetch}  acknowledge {ack}  empty {empty}  {rate_format.format(row[3])}")


if __name__ == "__main__":
    main()
