"""Measure how long librdkafka pauses when a worker is killed, and when all its connections to a broker are cut.

    python -m tests.bench.killed_workers [--kills 8] [--producers 4]

Idempotent producers work through two workers and two brokers. At the same time others work through a TCP relay that
one broker advertises, which then cuts all connections and accepts new ones immediately: what the client itself takes.
At each kill, the worker that serves most producers is killed with SIGKILL. Printed are the longest pauses of the
producers after the kills, by whether the killed worker had all, some or none of a producer's connections. Such a client
looks up its bootstrap servers again once all its connections have ended (KIP-899).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Producer
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, until
from tests.support.relay import Relay

TOPIC, PARTITIONS = "killed", 6
PACE_S = 0.02
"""Seconds between two records of a producer."""
BEGIN_S, BETWEEN_S, SEEN_S = 10.0, 14.0, 13.0
"""Seconds before the first kill, between two, and in which pauses are looked for."""
RELAYED = "all connections to a broker are cut"


class Working:
    """Producer in a separate thread."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name, self.acknowledged = name, list[float]()
        self._stop = threading.Event()
        self._settings = {"bootstrap.servers": bootstrap, "client.id": name, "enable.idempotence": True, "log_level": 0}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def pause(self, since: float) -> float:
        """Return the longest time without an acknowledgement after `since`."""
        times = [since, *(at for at in self.acknowledged if since < at < since + SEEN_S), since + SEEN_S]
        return max(after - before for before, after in pairwise(times))

    def _run(self) -> None:
        producer, number = Producer(self._settings), 0
        while not self._stop.wait(PACE_S):
            producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=self._delivered)
            producer.poll(0)
            number += 1
        producer.flush(SEEN_S)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            raise SystemExit(f"error: {self.name}: {error}")
        self.acknowledged.append(time.monotonic())


def workers_of(front: Front) -> Mapping[str, list[int]]:
    """Return the workers of each client's connections."""
    clients = defaultdict[str, list[int]](list)
    for line in json.loads(front.send_request("/connections")[1])["connections"]:
        clients[line["client_id"]].append(line["worker"])
    return clients


def both_serve(front: Front) -> bool:
    workers = json.loads(front.send_request("/readyz")[1]).get("workers", {})
    return len(workers) == 2 and all(workers.values())


def kill(front: Front, relay: Relay, producers: list[Working]) -> dict[str, str]:
    """Cut and kill. Return which of its connections each producer has lost."""
    clients = workers_of(front)
    pids = json.loads(front.send_request("/livez")[1])["workers"]
    killed = max(map(int, pids), key=lambda number: sum(number in workers for workers in clients.values()))
    relay.cut()
    os.kill(pids[str(killed)], signal.SIGKILL)
    lost = {}
    for each in producers:
        own = clients.get(each.name, [])
        amount = "all" if set(own) == {killed} else "some" if killed in own else "none"
        lost[each.name] = f"a worker with {amount} of the connections is killed"
    return lost


def measure(front: Front, relay: Relay, kills: int, producers: int) -> Mapping[str, list[float]]:
    for bootstrap in (front.bootstrap, relay.address):
        with Raw(bootstrap) as raw:
            raw.create_topic(TOPIC, PARTITIONS)
    ours = [Working(f"proxy-{number}", front.bootstrap) for number in range(producers)]
    relayed = [Working(f"relay-{number}", relay.address) for number in range(producers)]
    pauses = defaultdict[str, list[float]](list)
    time.sleep(BEGIN_S)
    for _ in range(kills):
        until(lambda: both_serve(front), "both workers")
        at, lost = time.monotonic(), kill(front, relay, ours)
        time.sleep(BETWEEN_S)
        for each in (*ours, *relayed):
            pauses[lost.get(each.name, RELAYED)].append(each.pause(at))
    for each in (*ours, *relayed):
        each.end()
    return pauses


def main() -> None:
    """Run it with two brokers for the proxy, and one for the relay."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--producers", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Relay("127.0.0.1:1") as relay:
        running = Running(Path(folder))
        try:
            front = running.front(running.cluster(OLD, nodes=2).bootstrap, {"workers": 2})
            relayed = running.cluster(OLD, relay_port=relay.port).nodes[0]
            relay.target = f"127.0.0.1:{relayed.relayed_port}"
            pauses = measure(front, relay, options.kills, options.producers)
        finally:
            running.close()
    for case, seconds in sorted(pauses.items()):
        low, high = min(seconds), max(seconds)
        print(f"{case:52} {len(seconds):3} times, {low:.2f} to {high:.2f} s, median {statistics.median(seconds):.2f}")


if __name__ == "__main__":
    main()
