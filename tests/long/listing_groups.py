"""A small client concurrently with one that lists very many share groups, or views, in a loop: `tests/run
tests/long/listing_groups.py -s`.

About a minute. Measured on two cores shared with other programs, the test at priority -15 (`nice -n -15`), p99 of the
bystander: ListGroups on one connection 16.5 ms, on new connections 30.9 ms, GET /groups 19.5 ms; longest loop
iterations 20 to 40 ms. At normal priority next to 15 to 25 runnable processes, it waits 200 to 600 ms for the CPU. The
slices are counted in tests/sharegroups/apis/test_k16_list_groups.py.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.values import Address

from tests.support.blocking_connection import Connection, build
from tests.support.brokers import OLD, Running
from tests.support.bystander import (
    CALM,
    EVERY_BESIDE_PIPELINED_S,
    HEARTBEAT,
    Bystander,
    Measured,
    World,
    longest_turn_s,
    note_waits,
)

pytestmark = pytest.mark.broker

GROUPS = 18_777
SECONDS = 10.0
ATTEMPTS = 3
LIST_GROUPS, VERSION = 16, 4
METADATA, CREATE_TOPICS = 3, 19
JOINING = 16
"""Connections over which the groups are made."""


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def world(running: Running, kafka: Cluster) -> World:
    front = running.front(kafka.bootstrap, {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}})
    world = World.around(front)
    began = time.monotonic()
    with ExitStack() as stack:
        address = Address("127.0.0.1", front.port)
        members = [stack.enter_context(Connection(address, "member")) for _ in range(JOINING)]
        for first in range(0, GROUPS, JOINING):
            numbers = range(first, min(first + JOINING, GROUPS))
            for number, member in zip(numbers, members, strict=False):
                beat = build("ShareGroupHeartbeatRequest", group_id=f"listed-{number}", member_id=str(uuid.uuid4()),
                             member_epoch=0, subscribed_topic_names=["base"])  # fmt: skip
                member.send(HEARTBEAT, 1, beat)
            for _, member in zip(numbers, members, strict=False):
                member.receive()
    print(f"{GROUPS:,} groups held after {time.monotonic() - began:.0f} s", file=sys.stderr)
    return world


def listed(connection: Connection) -> int:
    connection.send(LIST_GROUPS, VERSION, build("ListGroupsRequest", states_filter=[]))
    return len(connection.receive())


def on_one_connection(world: World, stack: ExitStack) -> Callable[[], int]:
    """The client's rights are remembered for a while."""
    connection = stack.enter_context(Connection(Address("127.0.0.1", world.front.port), "lister"))
    return lambda: listed(connection)


def on_new_connections(world: World, _: ExitStack) -> Callable[[], int]:
    """Nothing is remembered of the client's rights."""

    def list_groups() -> int:
        with Connection(Address("127.0.0.1", world.front.port), "lister") as connection:
            return listed(connection)

    return list_groups


def admin(world: World, _: ExitStack) -> Callable[[], int]:
    def show() -> int:
        status, text = world.front.send_request("/groups")
        assert status, text
        return len(text)

    return show


def views_of_20_000_partitions(world: World, stack: ExitStack) -> Callable[[], int]:
    """Views that are shown without topics: Metadata has each of their partitions."""
    connection = stack.enter_context(Connection(Address("127.0.0.1", world.front.port), "lister"))
    base = {"name": "listed-base", "num_partitions": 1, "replication_factor": 1}
    connection.send_request(CREATE_TOPICS, 5, build("CreateTopicsRequest", topics=[base]))
    names = [{"name": f"__view.r{slots}.listed-base"} for slots in range(1000, 980, -1)]

    def show() -> int:
        connection.send(METADATA, 12, build("MetadataRequest", topics=names, allow_auto_topic_creation=False))
        return len(connection.receive())

    return show


def beside(world: World, lists: Callable[[], int]) -> Measured:
    measured, ended = Measured(bound=CALM), threading.Event()

    def loop() -> None:
        while not ended.is_set():
            measured.largest = max(measured.largest, lists())
            measured.sent += 1

    assert lists() > GROUPS * len("listed-"), "the groups are not held"
    bystander = Bystander(world.front, "bystanders")
    longest_turn_s(world.front)
    listing = threading.Thread(target=loop)
    end = time.monotonic() + SECONDS
    listing.start()
    try:
        note_waits(measured, lambda: time.monotonic() > end, bystander.beat_on, EVERY_BESIDE_PIPELINED_S)
    finally:
        ended.set()
        listing.join()
        bystander.close()
    measured.longest_turn_s = longest_turn_s(world.front)
    return measured


@pytest.mark.parametrize("kind", [on_one_connection, on_new_connections, admin, views_of_20_000_partitions])
def test_repeated_lists_of_all_groups_keep_no_other_client_waiting(
    world: World, kind: Callable[[World, ExitStack], Callable[[], int]]
) -> None:
    for _ in range(ATTEMPTS):
        with ExitStack() as stack:
            measured = beside(world, kind(world, stack))
        print(f"{kind.__name__:20s} {measured}", file=sys.stderr)
        if measured.is_fine:
            return
    pytest.fail(f"{measured}\n{world.front.output()}")
