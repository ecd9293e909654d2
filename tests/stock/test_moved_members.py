"""Members of share groups move to the worker that owns their group, also when workers are killed around it."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.support.brokers import OLD, QUICK, Running
from tests.support.raw import RawError, Topic, until
from tests.support.worlds import ACCEPT, Member, World

pytestmark = pytest.mark.broker

GROUPS = 8
"""Each of their connections moves in every second run."""
RECORDS, ACCEPTED = 10, 5
DELAY_MAX_S = 0.004
"""Longest time between a request and a kill. A move takes less than a millisecond."""
COUNTERS = ("ksp_connections_total", "ksp_ended_total", "ksp_connections_moved_total")
ATTEMPTS = 50
"""Attempts to read a group after a kill. Each takes at least 0.2 s."""
KILLED = ("edge", "owner")
REQUEST_S = 120.0
"""Maximum seconds for the requests of a thread, which have limits themselves."""


@pytest.fixture(scope="module")
def front(running: Running) -> Front:
    return running.front(running.cluster(OLD).bootstrap, {"workers": 2, "share_groups": {"broker": QUICK}})


def read(front: Front, path: str) -> Any:
    ready, text = front.send_request(path)
    assert ready, text
    return json.loads(text)


def metric(front: Front, name: str) -> float:
    _, text = front.send_request("/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


@contextmanager
def world(front: Front, prefix: str) -> Iterator[World]:
    proxy_world = World("proxy", front.bootstrap, prefix)
    try:
        yield proxy_world
    finally:
        with suppress(OSError, RawError):
            proxy_world.close()


def owner(front: Front, group: str) -> str:
    """Return the number of the worker that owns a group, once it does."""

    def worker() -> str | None:
        ready, text = front.send_request("/groups")
        lines = json.loads(text)["groups"] if ready else ()
        return next((str(line["worker"]) for line in lines if line["group"] == group), None)

    return str(until(worker, f"an owner of {group}"))


def workers_that_serve(front: Front, key: ApiKey) -> set[str]:
    lines = read(front, "/connections")["connections"]
    return {str(line["worker"]) for line in lines if line["serving"] == key.name.title().replace("_", "")}


def fetching_at(front: Front, member: Member, topic: Topic) -> str:
    """Return the worker that serves a fetch of this member."""
    fetch = threading.Thread(target=member.fetch, args=(topic,), kwargs={"wait_ms": 700}, daemon=True)
    fetch.start()
    try:
        (worker,) = until(lambda: workers_that_serve(front, ApiKey.SHARE_FETCH), "the fetch to wait")
    finally:
        fetch.join(REQUEST_S)
    return str(worker)


def test_members_are_served_by_the_worker_that_owns_their_group(front: Front, fresh: Callable[[str], str]) -> None:
    """A connection of several groups moves a bounded number of times: the heartbeats of all share one."""
    wait_for_workers(front)
    until(lambda: metric(front, "ksp_connections ") == 0, "no connection of an earlier test")
    before = [metric(front, name) for name in COUNTERS]
    with world(front, fresh("moved")) as clients:
        topic = clients.topic()
        clients.raw.produce(topic, 3)
        for number in range(GROUPS):
            member = clients.member(clients.group(f"g{number}"), topics=[topic])
            assert member.take(topic).acquired(topic) == [(0, 2, 1)]
            assert member.acknowledge((topic, 0, 0, 2, ACCEPT)).code(topic) == 0
            assert fetching_at(front, member, topic) == owner(front, member.group)
            member.disconnect()
    until(lambda: metric(front, "ksp_connections ") == 0, "all connections to end")
    began, ended, moved = (metric(front, name) - was for name, was in zip(COUNTERS, before, strict=True))
    assert began == ended > moved > 0


def wait_for_workers(front: Front) -> None:
    until(lambda: len(read(front, "/livez")["workers"]) == 2, "both workers")
    until(lambda: front.send_request("/readyz/share-groups")[0], "share groups to be served")


def remaining(front: Front, prefix: str, group: str, topic: Topic) -> list[tuple[int, int]]:
    """Return the offsets that a new member acquires, after a worker was killed."""
    for _ in range(ATTEMPTS):
        with suppress(OSError, RawError, AssertionError), world(front, prefix) as clients:
            clients.label_topic(topic)
            member = Member(clients, group, f"late-{prefix}"[-36:])
            member.join([topic])
            return [(first, last) for first, last, _ in member.take(topic, limit_s=10).acquired(topic)]
        time.sleep(0.2)
    raise AssertionError(f"{group} is not served after {ATTEMPTS} attempts")


def kill(front: Front, number: str, after_s: float) -> None:
    pid = read(front, "/livez")["workers"][number]
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("killed", KILLED)
def test_a_kill_around_a_move_loses_no_record_and_redelivers_no_settled_one(
    front: Front, fresh: Callable[[str], str], killed: str
) -> None:
    wait_for_workers(front)
    prefix = fresh("killed")
    with world(front, prefix) as clients:
        topic, group = clients.topic(), clients.group()
        clients.raw.produce(topic, RECORDS)
        first = clients.member(group, topics=[topic])
        assert first.take(topic).acquired(topic)
        assert first.acknowledge((topic, 0, 0, ACCEPTED - 1, ACCEPT)).code(topic) == 0
        assert first.acknowledge(epoch=-1).error == 0
        number = owner(front, group)
        other = next(each for each in read(front, "/livez")["workers"] if each != number)
        second = Member(clients, group, f"second-{prefix}"[-36:])
        _ = second.connection
        outcome = threading.Thread(target=_try, args=(second, topic), daemon=True)
        outcome.start()
        kill(front, number if killed == "owner" else other, random.uniform(0, DELAY_MAX_S))
        outcome.join(REQUEST_S)
        second.disconnect()
    assert remaining(front, prefix, group, topic) == [(ACCEPTED, RECORDS - 1)]


def _try(member: Member, topic: Topic) -> None:
    with suppress(OSError, RawError, AssertionError):
        member.fetch(topic, epoch=0)
