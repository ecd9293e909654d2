"""Measure the overhead of a client whose proxy does not own its group: acquire and acknowledge, one at a time, at
either proxy.

    python -m tests.bench.peers [--rounds 5] [--seconds 1]

Two proxies of one fleet in front of one broker without share groups, one client. Rounds at the owner and at the other
proxy take turns; medians of the rounds are printed, with the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.support.brokers import OLD, Running
from tests.support.fleet import Fleet, elsewhere
from tests.support.worlds import ACCEPT, Member, World

RECORDS_AT_ONCE = 10
PRODUCES = 250
VALUE = b"v" * 1024


def play(member: Member, topic: object, seconds: float) -> tuple[list[float], list[float], int]:
    """(times of fetches, times of acknowledgements, records) of this many seconds."""
    fetches, acks, records = list[float](), list[float](), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        response = member.fetch(topic, silent=True, records=RECORDS_AT_ONCE, batch=RECORDS_AT_ONCE)  # type: ignore[arg-type]
        assert response.error == 0, response.plain
        fetched = time.perf_counter()
        fetches.append(fetched - began)
        for first, last, _ in response.acquired(topic):  # type: ignore[arg-type]
            began = time.perf_counter()
            member.acknowledge((topic, 0, first, last, ACCEPT), silent=True)  # type: ignore[arg-type]
            acks.append(time.perf_counter() - began)
            records += last - first + 1
    return fetches, acks, records


def owner_of(fleet: Fleet, world: World) -> tuple[str, str]:
    """A group, and the proxy that owns it."""
    group = world.group("bench")
    Member(world, group, "probe").heartbeat(0, topics=["none"], silent=True)
    return group, next(name for name in fleet.fronts if fleet.fronts[name].send_request(f"/groups/{group}")[0])


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--seconds", type=float, default=1.0)
    options = asked.parse_args()
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
    found: dict[str, list[tuple[float, float, float]]] = {owner: [], other: []}
    for number in range(rounds):
        for name, member in sorted(members.items(), reverse=bool(number % 2)):
            member.disconnect()
            member.epoch = 0
            fetches, acks, records = play(member, topic, seconds)
            if acks:
                row = statistics.median(fetches) * 1e3, statistics.median(acks) * 1e3, records / seconds
                found[name].append(row)
    rows = {name: tuple(map(statistics.median, zip(*each, strict=True))) for name, each in found.items()}
    for name, words in ((owner, "at the owner"), (other, "at the other")):
        fetch, ack, rate = rows[name]
        print(f"{words:13} fetch {fetch:6.2f} ms  acknowledge {ack:6.2f} ms  {rate:9,.0f} records/s")
    ratios = [rows[other][n] / rows[owner][n] for n in range(3)]
    print(f"{'ratio':13} fetch {ratios[0]:6.2f}     acknowledge {ratios[1]:6.2f}     {ratios[2]:9.2f}")


if __name__ == "__main__":
    main()
